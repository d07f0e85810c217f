use pathswarm::simulator::{Scenario, run};
fn main(){ let mut bad=0; for (n,s) in [("rough",Scenario::rough()),("churn",Scenario::churn())] { for seed in 0..2000 { if let Err(f)=run(&s,seed){ bad+=1; if bad<12 {println!("{n} {}",f.to_string().chars().take(300).collect::<String>());} } } println!("{n} bad {bad}"); } }
