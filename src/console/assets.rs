//! The files of the page, which are a part of the program.

use axum::Router;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::IntoResponse;
use axum::routing::get;

use crate::console::Shared;

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";

macro_rules! files {
    ($($path:literal is $kind:ident of $file:literal,)+) => {
        /// What is there for everybody who reaches the server: it holds nothing of the run.
        pub(super) const PATHS: &[&str] = &[$($path),+];

        const FILES: &[(&str, &str, &str)] = &[$(($path, $kind, include_str!(concat!("page/", $file)))),+];
    };
}

files! {
    "/" is HTML of "index.html",
    "/style.css" is STYLE of "style.css",
    "/app.js" is SCRIPT of "app.js",
    "/follow.js" is SCRIPT of "follow.js",
    "/model.js" is SCRIPT of "model.js",
    "/format.js" is SCRIPT of "format.js",
    "/dom.js" is SCRIPT of "dom.js",
    "/charts.js" is SCRIPT of "charts.js",
    "/views/swarm.js" is SCRIPT of "views/swarm.js",
    "/views/learning.js" is SCRIPT of "views/learning.js",
    "/series.js" is SCRIPT of "series.js",
    "/runs.js" is SCRIPT of "runs.js",
    "/views/talk.js" is SCRIPT of "views/talk.js",
    "/views/time.js" is SCRIPT of "views/time.js",
    "/views/people.js" is SCRIPT of "views/people.js",
    "/views/events.js" is SCRIPT of "views/events.js",
    "/vendor/uplot.js" is SCRIPT of "vendor/uplot.js",
    "/vendor/uplot.css" is STYLE of "vendor/uplot.css",
}

/// The scripts, by their paths.
#[cfg(test)]
pub(super) fn scripts() -> impl Iterator<Item = (&'static str, &'static str)> + Clone {
    FILES.iter().filter(|(_, kind, _)| *kind == SCRIPT).map(|(path, _, text)| (*path, *text))
}

/// A router that also has the files.
pub(super) fn routes(router: Router<Shared>) -> Router<Shared> {
    FILES.iter().fold(router, |router, (path, kind, text)| {
        let answer =
            move || async move { ([(CONTENT_TYPE, *kind), (CACHE_CONTROL, "no-cache")], *text).into_response() };
        router.route(path, get(answer))
    })
}
