//! The events of one peer, on their way to the hub.

use crate::names::PathId;
use crate::peer::PeerEvent;
use crate::peer::aggregator::OuterStep;
use crate::peer::trainer::task::Stepped;
use crate::protocol::Report;
use crate::protocol::status::waiting::Waiting;
use crate::telemetry::curves::outer_steps::OuterPoint;
use crate::telemetry::curves::series::Point;
use crate::telemetry::hub::Telemetry;
use crate::telemetry::now_ms;
use crate::telemetry::run::RunOutline;
use crate::telemetry::spans::Doing;
use crate::telemetry::state::Tone;
use crate::telemetry::words::waits_for;

/// Takes the events of one peer.
#[derive(Clone)]
pub struct Feed {
    telemetry: Telemetry,
    peer: String,
    run: RunOutline,
}

impl Feed {
    /// A peer of a run begins, under a short name for people.
    pub fn new(telemetry: &Telemetry, peer: &str, run: RunOutline) -> Self {
        telemetry.begin(&run);
        Self { telemetry: telemetry.clone(), peer: peer.to_owned(), run }
    }

    /// Takes an event, with the line that people are shown for it, if any.
    pub fn hear(&self, event: &PeerEvent, line: Option<&str>) {
        if let Some(line) = line {
            self.telemetry.log(Some(&self.peer), tone(event), line.to_owned());
        }
        match event {
            PeerEvent::Stepped(stepped) => self.stepped(stepped),
            PeerEvent::Waiting(Waiting::Done) => self.telemetry.idles(&self.peer),
            PeerEvent::Waiting(waiting) => self.waits(waiting),
            PeerEvent::Fetched { bytes, seconds } => self.telemetry.fetched(&self.peer, *bytes, *seconds),
            PeerEvent::Reported(report) => self.reported(report),
            PeerEvent::Scored { .. } => self.telemetry.idles(&self.peer),
            PeerEvent::OuterStep(OuterStep { module, version, norms }) => {
                let point = OuterPoint { at_ms: now_ms(), version: version.0, norms: *norms };
                self.telemetry.outer_step(*module, point);
            }
            _ => {}
        }
    }

    fn stepped(&self, stepped: &Stepped) {
        let path = self.run.slots.first_trainer(stepped.path);
        let doing = Doing::Training { path: path.0, phase: stepped.phase.0 };
        let at_ms = now_ms();
        // The first report comes after its steps.
        let from_ms = at_ms.saturating_sub((stepped.seconds * 1e3) as u64);
        self.telemetry.does(&self.peer, from_ms, doing, String::new());
        let point = Point {
            at_ms,
            step: self.run.steps(stepped.phase, stepped.step),
            tokens: stepped.tokens,
            loss: stepped.loss,
            tokens_per_s: if stepped.seconds > 0.0 { stepped.tokens as f64 / stepped.seconds } else { 0.0 },
            learning_rate: stepped.learning_rate,
            gradient_norm: stepped.gradient_norm,
        };
        self.telemetry.trained(&self.peer, path.0, (stepped.phase.0, point.step), stepped.loss);
        self.telemetry.point(&self.name_of(stepped.path, path), point);
    }

    /// `path/3`, or `path/3/2` for its second trainer.
    fn name_of(&self, slot: PathId, path: PathId) -> String {
        match self.run.slots.trainer_number(slot) {
            0 => format!("path/{path}"),
            number => format!("path/{path}/{}", number + 1),
        }
    }

    fn waits(&self, waiting: &Waiting) {
        let value = serde_json::json!(waiting);
        let text = |key: &str| value[key].as_str().map(str::to_owned);
        let doing = Doing::Waiting { kind: text("kind").unwrap_or_default(), module: text("module") };
        self.telemetry.does(&self.peer, now_ms(), doing, waits_for(waiting));
    }

    fn reported(&self, report: &Report) {
        let log = |tone, line: String| self.telemetry.log(Some(&self.peer), tone, line);
        match report {
            Report::Owner { module, owner } => log(Tone::Plain, format!("…{} owns module {module}", owner.short())),
            Report::Advanced { module, version, contributions } => {
                self.telemetry.advanced(&self.peer, *module, version.0, *contributions);
            }
            Report::Amended { phases, .. } => self.telemetry.amended(*phases),
            Report::HandedOff { path, from } => {
                let path = self.run.slots.describe(*path);
                log(Tone::Good, format!("continues {path} with the trainer of …{}", from.short()));
            }
            Report::BeganAfresh { path, from } => {
                let path = self.run.slots.describe(*path);
                log(Tone::Warning, format!("continues {path} without the trainer of …{}", from.short()));
            }
            Report::ChainSwitched { module, from, to } => {
                log(Tone::Warning, format!("module {module}: version {from} gives way to a heavier version {to}"));
            }
            Report::PathDone(path) => {
                self.telemetry.idles(&self.peer);
                log(Tone::Good, format!("{} is done", self.run.slots.describe(*path)));
            }
            _ => {}
        }
    }
}

/// How an event looks to whoever is responsible for the peer.
fn tone(event: &PeerEvent) -> Tone {
    match event {
        PeerEvent::ShortOfDisk(_) | PeerEvent::NotInvited(_) | PeerEvent::Alone { .. } => Tone::Bad,
        PeerEvent::WrongBytes { .. } | PeerEvent::ShortOfMemory(_) => Tone::Warning,
        PeerEvent::Reported(report) => match report {
            Report::Caught { .. } | Report::CopiedIdentity { .. } => Tone::Bad,
            Report::PathTaken(_) | Report::Amended { .. } => Tone::Good,
            Report::PathYielded(_) => Tone::Plain,
            _ => Tone::Warning,
        },
        PeerEvent::DiskTakes | PeerEvent::Scored { .. } => Tone::Good,
        PeerEvent::Stepped(_) | PeerEvent::Waiting(_) | PeerEvent::OuterStep(_) | PeerEvent::Fetched { .. } => {
            Tone::Plain
        }
    }
}
