mod shape;
use pathswarm::config::{Positions, Precision};
fn main() {
    let f = || {
        let t: usize = std::env::args().nth(1).unwrap().parse().unwrap();
        let p = if std::env::args().nth(2).as_deref() == Some("bf16") { Precision::Bf16 } else { Precision::F32 };
        let q =
            if std::env::args().nth(3).as_deref() == Some("learned") { Positions::Learned } else { Positions::Rotary };
        let mut b = shape::Bench::new(q, p, t);
        let mut v = vec![];
        for _ in 0..30 {
            let a = std::time::Instant::now();
            b.step();
            v.push(a.elapsed().as_secs_f64());
        }
        v.sort_by(f64::total_cmp);
        println!(
            "median {:.1} ms best {:.1} ms -> {:.0} tok/s best {:.0}",
            v[15] * 1e3,
            v[0] * 1e3,
            2048. / v[15],
            2048. / v[0]
        );
    };
    if std::env::args().nth(4).is_some() { f() } else { std::thread::spawn(f).join().unwrap() }
}
