//! The reference of all keys, as the documentation has it, for a terminal.

/// The page that is also read in the documentation.
const PAGE: &str = include_str!("../../../docs/reference/configuration.md");

/// A key of a run's file or of a machine's profile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Key {
    /// As `--set` takes it.
    pub name: String,
    /// Which values it takes, if the page says it apart from the meaning.
    pub value: Option<String>,
    /// The default in words; `None` where a value must be given.
    pub default: Option<String>,
    pub meaning: String,
    /// Whether it is of the machine, not of the run.
    pub of_machine: bool,
}

/// All keys, in the order of the page.
pub fn keys() -> Vec<Key> {
    let mut found = Vec::new();
    let (mut of_machine, mut table, mut columns) = (false, String::new(), Vec::new());
    for line in PAGE.lines() {
        if let Some(heading) = line.strip_prefix('#') {
            of_machine = if heading.starts_with("# ") { heading.contains("Machine") } else { of_machine };
            table = named_table(line).unwrap_or_default();
        } else if line.starts_with("`[") {
            table = named_table(line).unwrap_or_default();
        } else if !line.starts_with('|') {
            columns.clear();
        } else if columns.is_empty() {
            columns = cells(line);
        } else if columns[0] == "key" && !line.starts_with("|---") {
            found.extend(of_row(&columns, &cells(line), &table, of_machine));
        }
    }
    found
}

/// The table in a heading such as `[model.rotary]`.
fn named_table(line: &str) -> Option<String> {
    let (_, rest) = line.split_once("`[")?;
    Some(rest.split_once(']')?.0.trim_start_matches('[').to_owned())
}

fn cells(line: &str) -> Vec<String> {
    line.trim().trim_matches('|').split('|').map(|cell| without_links(cell.trim())).collect()
}

/// The keys of a row; most have one.
fn of_row(columns: &[String], cells: &[String], table: &str, of_machine: bool) -> Vec<Key> {
    let cell = |column: &str| {
        let at = columns.iter().position(|name| name == column)?;
        cells.get(at).filter(|cell| !cell.is_empty()).cloned()
    };
    let names = cells[0].split('`').skip(1).step_by(2);
    let whole = |name: &str| match table.is_empty() || name.starts_with(table) {
        true => name.to_owned(),
        false => format!("{table}.{name}"),
    };
    let key = |name| Key {
        name: whole(name),
        value: cell("value"),
        default: cell("default"),
        meaning: cell("meaning").unwrap_or_default(),
        of_machine,
    };
    names.map(key).collect()
}

/// `[words](page)` as words.
fn without_links(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('[') {
        let link = after.split_once("](").and_then(|(words, after)| Some((words, after.split_once(')')?.1)));
        match link.filter(|(words, _)| !words.contains(['[', '`'])) {
            Some((words, after)) => {
                plain += &format!("{before}{words}");
                rest = after;
            }
            None => {
                plain += &format!("{before}[");
                rest = after;
            }
        }
    }
    plain + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_the_page_becomes_a_key_with_its_whole_name() {
        let keys = keys();
        let key = |name: &str| keys.iter().find(|key| key.name == name).unwrap().clone();
        let clip = Key {
            name: "training.clip_norm".to_owned(),
            value: Some("above 0".to_owned()),
            default: Some("1".to_owned()),
            meaning: "inner gradients are clipped to this norm".to_owned(),
            of_machine: false,
        };
        assert_eq!(key("training.clip_norm"), clip);
        assert_eq!(key("model.rotary.base").default.as_deref(), Some("10000"));
        assert_eq!(
            key("training.augment.cutmix"),
            Key { name: "training.augment.cutmix".into(), ..key("training.augment.mixup") }
        );
        assert!(key("levels.sharing").value.unwrap().contains("experts"));
        assert!(key("device").of_machine && !key("training.phases").of_machine);
        assert_eq!((key("training.phases").default, key("training.phases").meaning.as_str()), (None, "outer steps"));
        assert_eq!(key("training.augment.flip").default.as_deref(), Some("false"));
        assert_eq!(
            key("outer.norm_cap").meaning,
            "a contribution longer than this many times the running norm weighs less"
        );
    }

    #[test]
    fn links_are_words_and_other_brackets_stay() {
        assert_eq!(without_links("a [b c](d.md#e) f"), "a b c f");
        assert_eq!(without_links("`[1, 2]` and x[0]"), "`[1, 2]` and x[0]");
    }
}
