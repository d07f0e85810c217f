//! Experiments on the disk. A file may extend others, named in `extends` relative to it. They are read first, in order,
//! and the file then overrides them: tables key by key, and arms by name. So common parts of experiments are written
//! once, and an experiment of another size only has the differences.

use std::path::{Path, PathBuf};

use toml::{Table, Value};

use super::plan::{Experiment, PlanError, lay_over};

/// Deeper chains of `extends` form a cycle.
const DEEPEST: usize = 8;

#[derive(Debug, thiserror::Error)]
pub enum FileError {
    #[error("{}: {source}", path.display())]
    Unreadable { path: PathBuf, source: std::io::Error },
    #[error("{}: {source}", path.display())]
    Syntax { path: PathBuf, source: toml::de::Error },
    #[error("{}: extends must be a file's name, or a list of some", .0.display())]
    Extends(PathBuf),
    #[error("{}: arm {arm:?} occurs twice", path.display())]
    Twice { path: PathBuf, arm: String },
    #[error("{}: extends forms a cycle", .0.display())]
    Circle(PathBuf),
    #[error("{}: {source}", path.display())]
    Plan { path: PathBuf, source: Box<PlanError> },
}

/// Reads an experiment.
pub fn read(path: &Path) -> Result<Experiment, FileError> {
    let (text, own) = parsed(path)?;
    // Errors of a file without `extends` can name lines.
    let found = match own.contains_key("extends") {
        false => Experiment::from_toml(&text),
        true => Experiment::from_table(table(path, 0)?),
    };
    found.map_err(|source| FileError::Plan { path: path.to_owned(), source: source.into() })
}

fn parsed(path: &Path) -> Result<(String, Table), FileError> {
    let text =
        std::fs::read_to_string(path).map_err(|source| FileError::Unreadable { path: path.to_owned(), source })?;
    let own: Table = text.parse().map_err(|source| FileError::Syntax { path: path.to_owned(), source })?;
    let arms = own.get("arms").and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<&str> = arms.filter_map(|arm| arm.get("name").and_then(Value::as_str)).collect();
    names.sort_unstable();
    if let Some(twice) = names.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(FileError::Twice { path: path.to_owned(), arm: twice[0].to_owned() });
    }
    Ok((text, own))
}

/// A file's table, merged with those of the files that it extends.
fn table(path: &Path, depth: usize) -> Result<Table, FileError> {
    if depth > DEEPEST {
        return Err(FileError::Circle(path.to_owned()));
    }
    let (_, mut own) = parsed(path)?;
    let mut whole = Table::new();
    for name in extended(own.remove("extends")).ok_or_else(|| FileError::Extends(path.to_owned()))? {
        lay_experiment_over(&mut whole, table(&path.with_file_name(name), depth + 1)?);
    }
    lay_experiment_over(&mut whole, own);
    Ok(whole)
}

/// The names of other files; `None` if the value is neither a name nor a list of names.
fn extended(value: Option<Value>) -> Option<Vec<String>> {
    let name = |value: Value| match value {
        Value::String(name) => Some(name),
        _ => None,
    };
    match value {
        None => Some(Vec::new()),
        Some(Value::Array(names)) => names.into_iter().map(name).collect(),
        Some(one) => Some(vec![name(one)?]),
    }
}

fn lay_experiment_over(below: &mut Table, mut above: Table) {
    let arms = above.remove("arms");
    lay_over(below, &above);
    let Some(arms) = arms else { return };
    match (below.get_mut("arms"), arms) {
        (Some(Value::Array(below)), Value::Array(above)) => above.into_iter().for_each(|arm| lay_arm_over(below, arm)),
        (_, arms) => drop(below.insert("arms".to_owned(), arms)),
    }
}

/// Merges into the arm of the same name, or appends.
fn lay_arm_over(below: &mut Vec<Value>, arm: Value) {
    let name = |arm: &Value| arm.get("name").cloned();
    let same = below.iter_mut().find(|other| name(other).is_some() && name(other) == name(&arm));
    match (same, arm) {
        (Some(Value::Table(below)), Value::Table(above)) => lay_over(below, &above),
        (_, arm) => below.push(arm),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: &str = r#"
        [run]
        levels = [{ parts = ["embedding", "block.0", "final-norm", "head"], sharing = { experts = 2 } }]
        model = { blocks = 1, width = 16, heads = 2, vocabulary = 300, context = 32 }
        routing = { prefix_tokens = 8 }
        training = { batch_sequences = 2, inner_steps = 2, phases = 4, ancestor_steps = 2, learning_rate = 1e-3 }
    "#;
    const SMALL: &str = r#"
        extends = "size.toml"
        name = "small"
        title = "Two arms"
        [[arms]]
        name = "a"
        run.training.phases = 3
        [[arms]]
        name = "b"
    "#;
    const WIDE: &str = r#"
        extends = ["small.toml"]
        name = "wide"
        seeds = [1, 2]
        run.model.width = 32
        [[arms]]
        name = "b"
        run.training.phases = 9
        [[arms]]
        name = "c"
    "#;

    fn folder(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        files.iter().for_each(|(name, text)| std::fs::write(folder.path().join(name), text).unwrap());
        folder
    }

    #[test]
    fn what_a_file_says_is_laid_over_what_it_extends() {
        let folder = folder(&[("size.toml", SIZE), ("small.toml", SMALL), ("wide.toml", WIDE)]);
        let (small, wide) =
            (read(&folder.path().join("small.toml")).unwrap(), read(&folder.path().join("wide.toml")).unwrap());
        let phases = |experiment: &Experiment| -> Vec<(String, u64, usize)> {
            let arm =
                |arm: &crate::experiment::plan::Arm| (arm.name.clone(), arm.run.training.phases, arm.run.model.width);
            experiment.arms.iter().map(arm).collect()
        };
        let named = |name: &str, phases, width| (name.to_owned(), phases, width);
        assert_eq!(phases(&small), [named("a", 3, 16), named("b", 4, 16)]);
        assert_eq!(phases(&wide), [named("a", 3, 32), named("b", 9, 32), named("c", 4, 32)]);
        assert_eq!(
            (wide.name.as_str(), wide.title.as_str(), &wide.arms[0].seeds[..]),
            ("wide", "Two arms", &[1, 2][..])
        );
    }

    #[test]
    fn files_that_make_no_experiment_are_named() {
        let folder = folder(&[
            ("circle.toml", "extends = \"circle.toml\""),
            ("number.toml", "extends = [3]"),
            ("lost.toml", "extends = \"nowhere.toml\""),
            ("broken.toml", "extends = "),
            ("size.toml", SIZE),
            ("twice.toml", "extends = \"size.toml\"\n[[arms]]\nname = \"a\"\n[[arms]]\nname = \"a\""),
        ]);
        let refused = |name: &str| read(&folder.path().join(name)).unwrap_err().to_string();
        assert!(refused("circle.toml").contains("extends forms a cycle"));
        assert!(refused("number.toml").contains("must be a file's name"));
        assert!(refused("lost.toml").contains("nowhere.toml"));
        assert!(refused("broken.toml").contains("broken.toml"));
        assert!(refused("twice.toml").contains("arm \"a\" occurs twice"));
        assert!(refused("size.toml").contains("missing field"));
    }
}
