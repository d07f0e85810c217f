//! The three views of progress.

use std::collections::BTreeMap;
use std::io::{self, Write, stdout};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::json;

use super::board::{Board, Portion, peer_line};
use super::event::ProgressEvent;
use super::terminal::PatientTerminal;

/// Peers with a line of their own, bounded by the height of a terminal.
const MOST_LINES: usize = 16;

/// How often a terminal is drawn at most.
const DRAWS_PER_S: u8 = 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum View {
    /// A line for each peer that changes in place, and a bar.
    Terminal,
    /// Lines on standard output at a low rate.
    Plain,
    /// JSON Lines on standard output, one for each event.
    Json,
}

impl View {
    /// JSON if requested, else bars if standard output and standard error are terminals, else plain lines.
    pub fn choose(json: bool) -> Self {
        use std::io::{IsTerminal, stderr, stdout};
        if json {
            Self::Json
        } else if stdout().is_terminal() && stderr().is_terminal() {
            Self::Terminal
        } else {
            Self::Plain
        }
    }
}

/// Shows events. If its reader goes away, the display stops, but the work does not.
pub(super) enum Screen {
    Terminal(Terminal),
    Plain(Box<dyn Write + Send>),
    Json(Box<dyn Write + Send>),
    Gone,
}

impl Screen {
    pub(super) fn new(view: View) -> Self {
        match view {
            View::Terminal => Self::Terminal(Terminal::new()),
            View::Plain => Self::Plain(Box::new(stdout())),
            View::Json => Self::Json(Box::new(stdout())),
        }
    }

    pub(super) fn event(&mut self, event: &ProgressEvent, board: &Board, now: Duration) {
        let written = match self {
            Self::Terminal(terminal) => terminal.event(event, board, now),
            Self::Plain(out) => match event {
                ProgressEvent::Note { text } => line(out, text),
                ProgressEvent::Peer(_) | ProgressEvent::Stage { .. } | ProgressEvent::Result(_) => Ok(()),
            },
            Self::Json(out) => json_line(out, event),
            Self::Gone => Ok(()),
        };
        self.keep_if(written);
    }

    /// Says that events were dropped, as the output was not read.
    pub(super) fn dropped(&mut self, count: u64, board: &Board, now: Duration) {
        let event = match self {
            Self::Json(_) => ProgressEvent::Result(json!({ "event": "dropped", "count": count })),
            _ => ProgressEvent::Note { text: format!("{count} reports of progress were dropped: nobody read them") },
        };
        self.event(&event, board, now);
    }

    /// Shows everything with a bounded rate.
    pub(super) fn tick(&mut self, board: &mut Board, now: Duration) {
        let written = match self {
            Self::Terminal(terminal) => {
                terminal.update(board, now);
                Ok(())
            }
            Self::Plain(out) => plain_lines(out, board, now),
            Self::Json(out) => board.total(now).map_or(Ok(()), |Portion { done, total, remaining, .. }| {
                let eta_s = remaining.map(|left| left.as_secs());
                json_line(out, &json!({ "event": "total", "done": done, "total": total, "eta_s": eta_s }))
            }),
            Self::Gone => Ok(()),
        };
        self.keep_if(written);
    }

    /// Shows what the bounded rate has delayed.
    pub(super) fn end(&mut self, board: &mut Board, now: Duration) {
        match self {
            Self::Plain(out) => {
                let written = plain_lines(out, board, now);
                self.keep_if(written);
            }
            Self::Terminal(terminal) => terminal.clear(),
            Self::Json(_) | Self::Gone => {}
        }
    }

    fn keep_if(&mut self, written: io::Result<()>) {
        if written.is_err() {
            *self = Self::Gone;
        }
    }
}

fn line(out: &mut dyn Write, text: &str) -> io::Result<()> {
    writeln!(out, "{text}").and_then(|()| out.flush())
}

fn json_line(out: &mut dyn Write, value: &impl serde::Serialize) -> io::Result<()> {
    line(out, &serde_json::to_string(value)?)
}

fn plain_lines(out: &mut dyn Write, board: &mut Board, now: Duration) -> io::Result<()> {
    if let Some(stage) = board.stage(now) {
        line(out, &stage.line())?;
    }
    let changed: Vec<String> = board.take_changed().into_iter().map(peer_line).collect();
    for peer in changed.iter().take(MOST_LINES) {
        line(out, peer)?;
    }
    if changed.len() > MOST_LINES {
        line(out, &format!("and {} more peers", changed.len() - MOST_LINES))?;
    }
    match board.total(now) {
        Some(total) if !changed.is_empty() => line(out, &total.line()),
        _ => Ok(()),
    }
}

/// A line for each peer that changes in place, and a bar for the current stage or for all steps.
pub(super) struct Terminal {
    lines: MultiProgress,
    peers: BTreeMap<String, ProgressBar>,
    bar: ProgressBar,
}

impl Terminal {
    fn new() -> Self {
        let target = ProgressDrawTarget::term_like_with_hz(Box::new(PatientTerminal::new()), DRAWS_PER_S);
        let lines = MultiProgress::with_draw_target(target);
        let bar = lines.add(ProgressBar::new(0).with_style(style("{bar:30} {msg}")));
        Self { lines, peers: BTreeMap::new(), bar }
    }

    fn event(&mut self, event: &ProgressEvent, board: &Board, now: Duration) -> io::Result<()> {
        match event {
            ProgressEvent::Note { text } => return self.lines.suspend(|| line(&mut stdout(), text)),
            ProgressEvent::Result(_) => return Ok(()),
            ProgressEvent::Stage { .. } => {}
            ProgressEvent::Peer(peer) => {
                if let Some(shown) = self.peers.get(&peer.peer) {
                    shown.set_message(peer_line(peer));
                } else if self.peers.len() < MOST_LINES {
                    let shown = ProgressBar::no_length().with_style(style("{wide_msg}"));
                    let shown = self.lines.insert_before(&self.bar, shown);
                    shown.set_message(peer_line(peer));
                    self.peers.insert(peer.peer.clone(), shown);
                }
            }
        }
        self.update(board, now);
        Ok(())
    }

    fn update(&self, board: &Board, now: Duration) {
        if let Some(portion) = board.stage(now).or_else(|| board.total(now)) {
            self.bar.set_length(portion.total);
            self.bar.set_position(portion.done);
            self.bar.set_message(portion.line());
        }
    }

    fn clear(&self) {
        // A terminal that is gone needs no clearing.
        let _ = self.lines.clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).expect("the templates above are fixed and valid")
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;
    use crate::observe::PeerProgress;

    /// A writer whose output a test can read.
    #[derive(Clone, Default)]
    pub(crate) struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Shared {
        pub(crate) fn text(&self) -> String {
            String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
        }
    }

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        pub(crate) fn json(out: impl Write + Send + 'static) -> Self {
            Self::Json(Box::new(out))
        }
    }

    fn peer(number: u64, step: u64) -> ProgressEvent {
        let peer = format!("p{number:02}");
        let (made, planned) = (step, 10);
        ProgressEvent::Peer(PeerProgress {
            peer,
            phase: 1,
            phases: 1,
            step,
            steps: 10,
            made,
            planned,
            ..PeerProgress::default()
        })
    }

    #[test]
    fn plain_lines_are_few_whatever_is_sent() {
        let written = Shared::default();
        let mut screen = Screen::Plain(Box::new(written.clone()));
        let mut board = Board::default();
        for step in 0..10 {
            for number in 0..20 {
                let event = peer(number, step);
                board.apply(&event, Duration::ZERO);
                screen.event(&event, &board, Duration::ZERO);
            }
        }
        assert_eq!(written.text(), "");
        screen.tick(&mut board, Duration::from_secs(9));
        let text = written.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), MOST_LINES + 2);
        assert_eq!(lines[0], "p00  phase 1/1  step   9/10");
        assert_eq!(lines[MOST_LINES], "and 4 more peers");
        assert_eq!(lines[MOST_LINES + 1], "all steps: 180/200 (90%), 1 s left");
        screen.tick(&mut board, Duration::from_secs(14));
        assert_eq!(written.text(), text);
    }

    #[test]
    fn a_note_is_shown_at_once_and_a_lost_reader_is_no_error() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let note = ProgressEvent::Note { text: "hello".to_owned() };
        let written = Shared::default();
        Screen::Plain(Box::new(written.clone())).event(&note, &Board::default(), Duration::ZERO);
        assert_eq!(written.text(), "hello\n");
        let mut screen = Screen::Plain(Box::new(Broken));
        screen.event(&note, &Board::default(), Duration::ZERO);
        assert!(matches!(screen, Screen::Gone));
    }
}
