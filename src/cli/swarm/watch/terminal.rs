//! The terminal while the screen is on it: how it is taken, and how it is given back on every way out.

use std::io::{self, Stdout, stdout};
use std::mem::ManuallyDrop;
use std::panic;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::time::{Duration, Instant};

use ratatui::backend::CrosstermBackend;
use ratatui::crossterm::cursor::Show;
use ratatui::crossterm::event::{Event, read};
use ratatui::crossterm::execute;
use ratatui::crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode, size,
};
use ratatui::layout::Rect;
use ratatui::{Frame, Terminal, TerminalOptions, Viewport};

use super::keys::{Asked, press};
use super::screen::draw;
use super::theme::Theme;
use super::view::ViewState;
use crate::telemetry::Telemetry;

/// Interval of what is shown.
const TICK: Duration = Duration::from_secs(1);

/// Interval at which it is looked whether the program is asked to end.
const LOOK: Duration = Duration::from_millis(100);

/// Keys that wait to be taken.
const KEYS: usize = 64;

/// The size of a terminal that does not know its own, as many pseudo-terminals of containers.
const UNKNOWN_SIZE: (u16, u16) = (80, 24);

/// Whether the screen is on the terminal.
static TAKEN: AtomicBool = AtomicBool::new(false);

/// Whether a thread of this program has panicked since.
static PANICKED: AtomicBool = AtomicBool::new(false);

/// Gives the terminal back, if it is taken. Nothing can be done about errors: it may be gone.
fn give_back() {
    if TAKEN.swap(false, Ordering::SeqCst) {
        let _ = execute!(stdout(), LeaveAlternateScreen, Show);
        let _ = disable_raw_mode();
    }
}

/// The terminal with the screen on it. It is given back when this is dropped, and before a panic is reported.
struct Screen {
    /// Not dropped: it would complain on standard error that the cursor cannot be shown, and panic if that is gone, too.
    terminal: ManuallyDrop<Terminal<CrosstermBackend<Stdout>>>,
    area: Rect,
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
    }
}

/// From now on, a panic gives the terminal back before it is reported, whichever thread it ends.
fn give_back_on_panic() {
    static HOOK: Once = Once::new();
    HOOK.call_once(|| {
        let report = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if TAKEN.load(Ordering::SeqCst) {
                give_back();
                PANICKED.store(true, Ordering::SeqCst);
            }
            report(panic);
        }));
    });
}

impl Screen {
    fn take() -> io::Result<Self> {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        let taken = || {
            enable_raw_mode()?;
            execute!(stdout(), EnterAlternateScreen)?;
            let area = area()?;
            let options = TerminalOptions { viewport: Viewport::Fixed(area) };
            let terminal = Terminal::with_options(CrosstermBackend::new(stdout()), options)?;
            Ok(Self { terminal: ManuallyDrop::new(terminal), area })
        };
        taken().inspect_err(|_| give_back())
    }

    fn draw(&mut self, with: impl FnOnce(&mut Frame<'_>)) -> io::Result<()> {
        let area = area()?;
        if area != self.area {
            self.area = area;
            self.terminal.resize(area)?;
        }
        self.terminal.draw(with)?;
        Ok(())
    }

    fn forget_what_is_shown(&mut self) -> io::Result<()> {
        self.terminal.clear()
    }
}

/// The size that is drawn on.
fn area() -> io::Result<Rect> {
    let (columns, rows) = size()?;
    let known = |it: u16, unknown: u16| if it == 0 { unknown } else { it };
    Ok(Rect::new(0, 0, known(columns, UNKNOWN_SIZE.0), known(rows, UNKNOWN_SIZE.1)))
}

/// Reads keys and changes of size from now on. The thread cannot be ended while it waits for a key, so it ends with the
/// process: a reader that sees the end of its terminal would not notice that nobody listens.
fn listen() -> io::Result<Receiver<io::Result<Event>>> {
    let (sender, events) = sync_channel(KEYS);
    std::thread::Builder::new().name("keys".to_owned()).spawn(move || {
        loop {
            let event = read();
            let failed = event.is_err();
            if sender.send(event).is_err() || failed {
                return;
            }
        }
    })?;
    Ok(events)
}

/// Shows the run until the user leaves, `ends` is set, or the terminal is gone.
///
/// # Errors
/// If the terminal cannot be read or written although it is there.
pub fn show(telemetry: &Telemetry, mut view: ViewState, ends: &AtomicBool) -> io::Result<()> {
    let mut screen = Screen::take()?;
    let shown = follow(&mut screen, telemetry, &mut view, ends);
    match shown {
        Err(error) if is_gone(&error) => Ok(()),
        shown => shown,
    }
}

/// Whether the terminal has been closed, which ends a screen as it should.
fn is_gone(error: &io::Error) -> bool {
    let codes = [libc::EIO, libc::ENXIO, libc::ENOTTY, libc::EPIPE];
    error.kind() == io::ErrorKind::BrokenPipe || error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

#[expect(clippy::disallowed_methods, reason = "an edge: the screen is drawn once a second")]
fn follow(screen: &mut Screen, telemetry: &Telemetry, view: &mut ViewState, ends: &AtomicBool) -> io::Result<()> {
    let theme = Theme::of_environment();
    let events = listen()?;
    let mut overview = telemetry.overview();
    let mut due = Instant::now() + TICK;
    loop {
        let mut limits = super::view::Limits::default();
        screen.draw(|frame| limits = draw(frame, &overview, view, theme))?;
        view.drawn(&overview, limits);
        match next(&events, due, ends)? {
            Next::End => return Ok(()),
            Next::Tick => {
                overview = telemetry.overview();
                // Not the ticks that a stopped process has missed.
                due = Instant::now() + TICK;
            }
            Next::Event(Event::Key(key)) => match press(key, view, limits) {
                Asked::Nothing => {}
                Asked::Leave => return Ok(()),
                Asked::DrawAnew => screen.forget_what_is_shown()?,
            },
            // The size is asked for when it is drawn.
            Next::Event(_) => {}
        }
    }
}

/// What happens next.
enum Next {
    Tick,
    Event(Event),
    End,
}

#[expect(clippy::disallowed_methods, reason = "an edge: the screen is drawn once a second")]
fn next(events: &Receiver<io::Result<Event>>, due: Instant, ends: &AtomicBool) -> io::Result<Next> {
    loop {
        if PANICKED.load(Ordering::SeqCst) {
            return Err(io::Error::other("a thread of this program has failed"));
        }
        if ends.load(Ordering::SeqCst) {
            return Ok(Next::End);
        }
        let left = due.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(Next::Tick);
        }
        match events.recv_timeout(left.min(LOOK)) {
            Ok(event) => return Ok(Next::Event(event?)),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return Ok(Next::End),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_of_any_thread_gives_the_terminal_back_and_ends_the_screen() {
        give_back_on_panic();
        TAKEN.store(true, Ordering::SeqCst);
        assert!(std::thread::spawn(|| panic!("as a test wants it")).join().is_err());
        assert!(!TAKEN.load(Ordering::SeqCst) && PANICKED.load(Ordering::SeqCst));
        let (_keys, events) = sync_channel(1);
        #[expect(clippy::disallowed_methods, reason = "it is not waited for")]
        let due = Instant::now() + TICK;
        let ended = next(&events, due, &AtomicBool::new(false));
        assert!(ended.is_err_and(|error| error.to_string().contains("failed") && !is_gone(&error)));
    }

    #[test]
    fn a_terminal_that_is_gone_is_no_error() {
        assert!(is_gone(&io::Error::from_raw_os_error(libc::EIO)) && is_gone(&io::ErrorKind::BrokenPipe.into()));
        assert!(!is_gone(&io::ErrorKind::PermissionDenied.into()));
    }
}
