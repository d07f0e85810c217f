//! Pieces of a page that opens without a network. Whatever comes from a run, and so perhaps from others, becomes HTML here and nowhere else.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Characters of a cell that stay on one line, such as a date.
const MOST_UNBROKEN: usize = 24;

/// Text as HTML: nothing of it is markup, and nothing of it can turn the direction of what follows.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(character),
            '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{200e}' | '\u{200f}' => escaped.push('\u{fffd}'),
            control if control.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// The first characters of a text, and an ellipsis if there are more.
pub(crate) fn clipped(text: &str, most: usize) -> String {
    let mut characters = text.chars();
    let first: String = characters.by_ref().take(most).collect();
    if characters.next().is_some() { format!("{first}…") } else { first }
}

/// A section with a heading. `body` is HTML.
pub(crate) fn section(id: &str, title: &str, body: &str) -> String {
    let (id, title) = (escape(id), escape(title));
    format!(
        "<section id=\"{id}\" aria-labelledby=\"{id}-title\">\n<h2 id=\"{id}-title\">{title}</h2>\n{body}</section>\n"
    )
}

pub(crate) fn heading(title: &str) -> String {
    format!("<h3>{}</h3>\n", escape(title))
}

pub(crate) fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

/// A remark, such as what a folder does not have.
pub(crate) fn remark(text: &str) -> String {
    format!("<p class=\"faint\">{}</p>\n", escape(text))
}

/// Text as it stands, with its lines.
pub(crate) fn verbatim(text: &str) -> String {
    format!("<pre>{}</pre>\n", escape(text))
}

/// Something long that is shown when it is asked for, and on paper.
pub(crate) fn folded(title: &str, body: &str) -> String {
    format!("<details><summary>{}</summary>\n{body}</details>\n", escape(title))
}

/// A table. Columns whose name begins with `#` have numbers, and are set to the right.
pub(crate) fn table(columns: &[&str], rows: &[Vec<String>]) -> String {
    let class = |column: usize| match columns.get(column) {
        Some(name) if name.starts_with('#') => " class=\"number\"",
        _ => "",
    };
    let name = |(at, name): (usize, &&str)| {
        format!("<th scope=\"col\"{}>{}</th>", class(at), escape(name.trim_start_matches('#')))
    };
    let head: String = columns.iter().enumerate().map(name).collect();
    let cell = |(at, text): (usize, &String)| match (at, class(at)) {
        (0, class) => format!("<th scope=\"row\"{class}>{}</th>", escape(text)),
        (_, "") if text.chars().count() <= MOST_UNBROKEN => format!("<td class=\"short\">{}</td>", escape(text)),
        (_, class) => format!("<td{class}>{}</td>", escape(text)),
    };
    let row = |cells: &Vec<String>| {
        let cells: String = cells.iter().enumerate().map(cell).collect();
        format!("<tr>{cells}</tr>\n")
    };
    let body: String = rows.iter().map(row).collect();
    format!(
        "<div class=\"scroll\" tabindex=\"0\"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table></div>\n"
    )
}

/// Names with a value and a note each, side by side.
pub(crate) fn tiles(tiles: &[(String, String, String)]) -> String {
    let tile = |(label, value, note): &(String, String, String)| {
        let [label, value, note] = [label, value, note].map(|text| escape(text));
        format!(
            "<div class=\"tile\"><div class=\"label\">{label}</div><div class=\"value\">{value}</div>\
             <div class=\"note\">{note}</div></div>\n"
        )
    };
    let tiles: String = tiles.iter().map(tile).collect();
    format!("<div class=\"tiles\">\n{tiles}</div>\n")
}

/// An SVG image as a figure, with what it shows in words for whoever does not see it.
pub(crate) fn figure(id: &str, svg: &str, caption: &str, described: &str) -> String {
    let (id, caption, described) = (escape(id), escape(caption), escape(described));
    let named =
        format!("<svg role=\"img\" aria-labelledby=\"{id}-name {id}-desc\" preserveAspectRatio=\"xMidYMid meet\" ");
    let inside = format!("<title id=\"{id}-name\">{caption}</title><desc id=\"{id}-desc\">{described}</desc>");
    // The image is ours: its first tag ends at the first `>`.
    let shown = svg.trim_start().strip_prefix("<svg ").and_then(|rest| rest.split_once('>'));
    // Within HTML an image needs no name of its language.
    let attributes = |attributes: &str| attributes.replace(" xmlns=\"http://www.w3.org/2000/svg\"", "");
    let shown = shown.map(|(given, rest)| format!("{named}{}>{inside}{rest}", attributes(given)));
    let shown = shown.unwrap_or_default();
    format!(
        "<figure><div class=\"scroll\" tabindex=\"0\">{shown}</div><figcaption>{}</figcaption></figure>\n",
        format!("{caption}. {described}").trim_end()
    )
}

/// A PNG image as a figure.
pub(crate) fn raster(png: &[u8], caption: &str) -> String {
    let (data, caption) = (STANDARD.encode(png), escape(caption));
    format!(
        "<figure><div class=\"scroll\" tabindex=\"0\"><img alt=\"\" src=\"data:image/png;base64,{data}\"></div>\
         <figcaption>{caption}.</figcaption></figure>\n"
    )
}

/// A whole page. It may load nothing from anywhere, and runs no program.
pub(crate) fn page(title: &str, under: &str, body: &str) -> String {
    let title = escape(title);
    let style = include_str!("style.css");
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; img-src data:\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"referrer\" content=\"no-referrer\">\n<title>{title}</title>\n<style>\n{style}</style>\n</head>\n<body>\n\
         <header>\n<h1>{title}</h1>\n{under}</header>\n<main>\n{body}</main>\n\
         <footer><p class=\"faint\">Written by pathswarm {}. This page is one file, and loads nothing.</p></footer>\n\
         </body>\n</html>\n",
        env!("CARGO_PKG_VERSION")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><img src=x onerror=\"alert('1')\">&\u{202e}\u{7}";

    #[test]
    fn nothing_that_others_wrote_becomes_markup() {
        let harmless = "&lt;/script&gt;&lt;img src=x onerror=&quot;alert(&#39;1&#39;)&quot;&gt;&amp;\u{fffd}\u{fffd}";
        assert_eq!(escape(HOSTILE), harmless);
        let rows = [vec![HOSTILE.to_owned(), HOSTILE.to_owned()]];
        let svg = "<svg width=\"1\">\n<rect/></svg>";
        let tile = (HOSTILE.to_owned(), HOSTILE.to_owned(), HOSTILE.to_owned());
        let pieces = [
            section("id", HOSTILE, ""),
            heading(HOSTILE),
            paragraph(HOSTILE),
            remark(HOSTILE),
            verbatim(HOSTILE),
            folded(HOSTILE, ""),
            table(&[HOSTILE, "#"], &rows),
            tiles(&[tile]),
            figure("id", svg, HOSTILE, HOSTILE),
            raster(b"", HOSTILE).replace("<img alt=\"\" src=\"data:image/png;base64,\">", ""),
            page(HOSTILE, "", ""),
        ];
        for piece in pieces {
            assert!(piece.contains(harmless) && !piece.contains("<img") && !piece.contains('\u{202e}'), "{piece}");
        }
    }

    #[test]
    fn a_figure_is_named_for_whoever_does_not_see_it() {
        let shown = figure("loss", "<svg width=\"1\">\n<rect/></svg>", "Loss", "It falls");
        let svg = "<svg role=\"img\" aria-labelledby=\"loss-name loss-desc\" preserveAspectRatio=\"xMidYMid meet\" \
                   width=\"1\"><title id=\"loss-name\">Loss</title><desc id=\"loss-desc\">It falls</desc>\n<rect/></svg>";
        assert!(shown.contains(svg), "{shown}");
    }

    #[test]
    fn what_is_clipped_says_so() {
        assert_eq!([clipped("äbc", 3), clipped("äbcd", 3)], ["äbc", "äbc…"]);
    }
}
