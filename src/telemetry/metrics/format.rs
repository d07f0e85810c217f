//! The two formats that scrapers of metrics read: OpenMetrics, and the text format of Prometheus, which is older.

use std::fmt::Write as _;

/// How metrics are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
    OpenMetrics,
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/>
    Text,
}

impl Format {
    /// The format for a request with this `Accept` header: OpenMetrics only for who names it, as other exporters do.
    pub fn accepted(header: Option<&str>) -> Self {
        let refuses = |parameter: &str| {
            let quality = parameter.trim().strip_prefix("q=").map(str::parse::<f32>);
            matches!(quality, Some(Ok(quality)) if quality <= 0.0)
        };
        let names_it = |range: &str| {
            let mut parts = range.split(';');
            let kind = parts.next().unwrap_or_default().trim();
            kind.eq_ignore_ascii_case("application/openmetrics-text") && !parts.any(refuses)
        };
        match header.is_some_and(|header| header.split(',').any(names_it)) {
            true => Self::OpenMetrics,
            false => Self::Text,
        }
    }

    /// The `Content-Type` of it.
    pub fn content_type(self) -> &'static str {
        match self {
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Self::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }
}

/// Rewrites OpenMetrics: the text format has no units and no end, and names a counter as its samples are named.
pub(super) fn to_text(open_metrics: &str) -> String {
    let mut text = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        let mut words = line.splitn(4, ' ');
        match [words.next(), words.next(), words.next(), words.next()] {
            [Some("#"), Some("HELP"), Some(name), said] => help = Some((name, said.unwrap_or_default())),
            [Some("#"), Some("TYPE"), Some(name), Some(kind)] => {
                let (suffix, kind) = match kind {
                    "counter" => ("_total", kind),
                    "unknown" => ("", "untyped"),
                    kind => ("", kind),
                };
                let said = help.take().filter(|(of, _)| *of == name);
                // Writing to a string does not fail.
                let _ = said.map(|(_, said)| writeln!(text, "# HELP {name}{suffix} {said}"));
                let _ = writeln!(text, "# TYPE {name}{suffix} {kind}");
            }
            [Some("#"), ..] => {}
            _ => {
                text.push_str(line);
                text.push('\n');
            }
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn openmetrics_is_for_who_names_it() {
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;\
                          q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2";
        assert_eq!(Format::accepted(Some(prometheus)), Format::OpenMetrics);
        assert_eq!(Format::accepted(Some("Application/OpenMetrics-Text")), Format::OpenMetrics);
        for other in ["*/*", "text/plain;version=0.0.4", "", "application/openmetrics-text;q=0, */*", "q=1;;,,"] {
            assert_eq!(Format::accepted(Some(other)), Format::Text, "{other}");
        }
        assert_eq!(Format::accepted(None), Format::Text);
    }

    #[test]
    fn text_names_counters_as_their_samples_and_has_no_units() {
        let open_metrics = "# HELP a_bytes Bytes \\n of it.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\n\
                            a_bytes_total{peer=\"x # y\"} 1.0\n# HELP b B.\n# TYPE b gauge\nb 2\n# EOF\n";
        let text = "# HELP a_bytes_total Bytes \\n of it.\n# TYPE a_bytes_total counter\n\
                    a_bytes_total{peer=\"x # y\"} 1.0\n# HELP b B.\n# TYPE b gauge\nb 2\n";
        assert_eq!(to_text(open_metrics), text);
    }
}
