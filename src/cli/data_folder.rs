//! Where this program keeps its files if nobody names a folder.

use std::ffi::OsString;
use std::path::PathBuf;

/// `PATHSWARM_HOME`, else a folder of the program in the platform's folder for data of the user, such as
/// `~/.local/share/pathswarm`. Where the user has no home, the working directory.
pub fn data_folder() -> PathBuf {
    chosen(std::env::var_os("PATHSWARM_HOME"), of_platform())
}

fn chosen(home: Option<OsString>, of_platform: Option<PathBuf>) -> PathBuf {
    match home.filter(|home| !home.is_empty()) {
        Some(home) => PathBuf::from(home),
        None => of_platform.map_or_else(PathBuf::new, |folder| folder.join("pathswarm")),
    }
}

#[cfg(feature = "network")]
fn of_platform() -> Option<PathBuf> {
    use etcetera::BaseStrategy;
    etcetera::base_strategy::choose_native_strategy().ok().map(|strategy| strategy.data_dir())
}

#[cfg(not(feature = "network"))]
fn of_platform() -> Option<PathBuf> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_variable_is_followed_before_the_platform() {
        let platform = || Some(PathBuf::from("/home/ann/.local/share"));
        assert_eq!(chosen(Some("/data".into()), platform()), PathBuf::from("/data"));
        for empty in [None, Some(OsString::new())] {
            assert_eq!(chosen(empty, platform()), PathBuf::from("/home/ann/.local/share/pathswarm"));
        }
        assert_eq!(chosen(None, None).join("runs"), PathBuf::from("runs"));
    }
}
