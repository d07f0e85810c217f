//! The control groups of Linux to which this process belongs, as far as they limit its memory, and how much of it they have
//! taken. `/proc/self/cgroup` names the group, `/proc/self/mountinfo` the folder in which it is; both versions are read
//! ([cgroups(7)], Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst of the kernel).
//!
//! A group's processes count in all of its ancestors, so each ancestor with a limit is one more to keep.
//!
//! [cgroups(7)]: https://man7.org/linux/man-pages/man7/cgroups.7.html

use std::fs::read_to_string;
use std::path::{Component, Path, PathBuf};

/// Where a version has the numbers of a group.
struct Files {
    /// The lowest of them holds.
    limits: &'static [&'static str],
    usage: &'static str,
    /// Lines of `memory.stat` that count what the kernel reads again from the disk when it needs the memory.
    files: [&'static str; 2],
    /// The same, as far as programs have it mapped.
    mapped: &'static str,
}

const V1: Files = Files {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    files: ["total_inactive_file", "total_active_file"],
    mapped: "total_mapped_file",
};

/// Above `memory.high` the kernel does not end a process, but slows it down to a crawl.
const V2: Files = Files {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    files: ["inactive_file", "active_file"],
    mapped: "file_mapped",
};

/// Bytes of mapped files that are taken for the program itself: about what libtorch has on the CPU. Without its code in memory,
/// a process hardly moves.
const PROGRAM_BYTES: u64 = 400 << 20;

/// Version 1 writes the largest number of pages where there is no limit.
const NO_LIMIT: u64 = 1 << 60;

/// A group that has numbers of its memory.
pub struct ControlGroup {
    folder: PathBuf,
    files: &'static Files,
}

impl ControlGroup {
    /// Bytes that its processes may take; `None` without a limit.
    pub fn limit(&self) -> Option<u64> {
        let limits = self.files.limits.iter().filter_map(|file| self.number(file));
        limits.min().filter(|bytes| *bytes < NO_LIMIT)
    }

    /// Bytes that its processes have taken and that the kernel cannot take back without harm: without the cache of files, but
    /// with the code of programs.
    pub fn taken(&self) -> Option<u64> {
        let stat = read_to_string(self.folder.join("memory.stat")).unwrap_or_default();
        let of = |name: &str| {
            let lines = stat.lines().filter_map(|line| line.split_once(' '));
            let mut lines = lines.filter(|(key, _)| *key == name);
            lines.find_map(|(_, bytes)| bytes.trim().parse::<u64>().ok()).unwrap_or(0)
        };
        let cached = self.files.files.into_iter().map(of).fold(0, u64::saturating_add);
        let code = of(self.files.mapped).min(PROGRAM_BYTES).min(cached);
        Some(self.number(self.files.usage)?.saturating_sub(cached - code))
    }

    fn number(&self, file: &str) -> Option<u64> {
        read_to_string(self.folder.join(file)).ok()?.trim().parse().ok()
    }
}

/// The groups with a limit to which this process belongs, each before its ancestors. None where there are no control groups.
pub fn limited_groups() -> Vec<ControlGroup> {
    let read = |file| read_to_string(file).unwrap_or_default();
    let groups = groups(Path::new("/"), &read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
    groups.into_iter().filter(|group| group.limit().is_some()).collect()
}

/// The lowest limit of this process's groups in bytes.
pub fn lowest_limit() -> Option<u64> {
    limited_groups().iter().filter_map(ControlGroup::limit).min()
}

/// All groups of a process, from what the kernel says of it, where `/` is `root`.
fn groups(root: &Path, cgroup: &str, mountinfo: &str) -> Vec<ControlGroup> {
    let mut found = Vec::new();
    for mount in mountinfo.lines().filter_map(Mount::read) {
        let Some(own) = cgroup.lines().find_map(|line| path_of(line, mount.first_version)) else { continue };
        // A namespace may show a part of the tree alone, or none of what is above.
        let inside = Path::new(own).strip_prefix(&mount.shows).unwrap_or(Path::new(""));
        let is_plain = inside.components().all(|part| matches!(part, Component::Normal(_)));
        let inside = if is_plain { inside } else { Path::new("") };
        let files = if mount.first_version { &V1 } else { &V2 };
        let top = root.join(mount.at.trim_start_matches('/'));
        found.extend(inside.ancestors().map(|inside| ControlGroup { folder: top.join(inside), files }));
    }
    found
}

/// The path in a line of `/proc/self/cgroup`, `number:controllers:path`, if it is that of memory in this version.
fn path_of(line: &str, first_version: bool) -> Option<&str> {
    let mut parts = line.splitn(3, ':');
    let (number, controllers, path) = (parts.next()?, parts.next()?, parts.next()?);
    let is_it = match first_version {
        true => controllers.split(',').any(|name| name == "memory"),
        false => number == "0" && controllers.is_empty(),
    };
    is_it.then_some(path)
}

/// A tree of control groups in the file system.
struct Mount {
    first_version: bool,
    /// The folder of the tree that is seen.
    shows: String,
    /// Where it is seen.
    at: String,
}

impl Mount {
    /// From a line of `/proc/self/mountinfo`, if it is a tree that counts memory.
    fn read(line: &str) -> Option<Self> {
        let (mount, system) = line.split_once(" - ")?;
        let mut system = system.split(' ');
        let (kind, options) = (system.next()?, system.nth(1)?);
        let first_version = match kind {
            "cgroup" if options.split(',').any(|option| option == "memory") => true,
            "cgroup2" => false,
            _ => return None,
        };
        let mut fields = mount.split(' ').skip(3).map(unescaped);
        Some(Self { first_version, shows: fields.next()?, at: fields.next()? })
    }
}

/// Spaces, tabs, line ends and backslashes are written in octal.
fn unescaped(field: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .into_iter()
        .fold(field.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

#[cfg(test)]
mod tests {
    use std::fs::{create_dir_all, write};

    use tempfile::{TempDir, tempdir};

    use super::*;

    /// A file system with these files.
    fn root(files: &[(&str, &str)]) -> TempDir {
        let root = tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            create_dir_all(path.parent().unwrap()).unwrap();
            write(path, text).unwrap();
        }
        root
    }

    fn limits(root: &TempDir, cgroup: &str, mountinfo: &str) -> Vec<u64> {
        groups(root.path(), cgroup, mountinfo).iter().filter_map(ControlGroup::limit).collect()
    }

    const FIRST: &str = "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
                         35 31 0:32 / /sys/fs/cgroup/memory rw,relatime shared:9 - cgroup cgroup rw,memory\n\
                         36 31 0:33 / /sys/fs/cgroup/pids rw,relatime - cgroup cgroup rw,pids\n";
    const SECOND: &str = "29 22 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_first_version_has_the_limit_of_the_process_s_own_group_and_of_those_above() {
        let root = root(&[
            ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ("sys/fs/cgroup/memory/jobs/memory.limit_in_bytes", "5000\n"),
            ("sys/fs/cgroup/memory/jobs/mine/memory.limit_in_bytes", "7000\n"),
            ("sys/fs/cgroup/memory/other/memory.limit_in_bytes", "10\n"),
            ("sys/fs/cgroup/pids/jobs/mine/memory.limit_in_bytes", "1\n"),
        ]);
        let own = "9:name=systemd:/\n8:pids:/jobs/mine\n4:cpu,memory:/jobs/mine\n0::/\n";
        assert_eq!(limits(&root, own, FIRST), [7000, 5000]);
        assert_eq!(limits(&root, "4:memory:/jobs/mine/gone\n", FIRST), [7000, 5000], "a part of it is not seen");
        assert_eq!(limits(&root, "4:memory:/\n", FIRST), [0; 0]);
    }

    #[test]
    fn the_second_version_has_a_maximum_and_a_number_from_which_on_the_kernel_slows_down() {
        let root = root(&[
            ("sys/fs/cgroup/user.slice/memory.max", "max\n"),
            ("sys/fs/cgroup/user.slice/memory.high", "6000\n"),
            ("sys/fs/cgroup/user.slice/run.scope/memory.max", "8000\n"),
            ("sys/fs/cgroup/user.slice/run.scope/memory.high", "max\n"),
        ]);
        assert_eq!(limits(&root, "0::/user.slice/run.scope\n", SECOND), [8000, 6000]);
        assert_eq!(limits(&root, "0::/../../elsewhere\n", SECOND), [0; 0], "outside of what is seen");
        assert_eq!(limits(&root, "4:memory:/user.slice\n", SECOND), [0; 0], "of another version");
    }

    #[test]
    fn a_container_that_sees_its_own_part_of_the_tree_finds_its_limit_at_the_top() {
        let root = root(&[("sys/fs/cgroup/memory/memory.limit_in_bytes", "3000\n")]);
        let mount =
            "35 31 0:32 /docker/ab\\040c /sys/fs/cgroup/memory ro,relatime master:11 - cgroup cgroup rw,memory\n";
        assert_eq!(limits(&root, "4:memory:/docker/ab c\n", mount), [3000]);
        assert_eq!(limits(&root, "4:memory:/docker/ab c/mine\n", mount), [3000]);
    }

    #[test]
    fn the_cache_of_files_is_not_taken_but_for_the_code_of_programs() {
        let stat = "cache 1\ninactive_file 7\ntotal_inactive_file 100\ntotal_active_file 20\nactive_file x\ntotal_mapped_file 5";
        let root = root(&[
            ("sys/fs/cgroup/memory/memory.usage_in_bytes", "1000\n"),
            ("sys/fs/cgroup/memory/memory.stat", stat),
            ("sys/fs/cgroup/memory.current", "500\n"),
            ("sys/fs/cgroup/memory.stat", "anon 400\ninactive_file 30\nactive_file 3\nfile_mapped 99\n"),
        ]);
        let taken = |own: &str, mounts: &str| groups(root.path(), own, mounts)[0].taken();
        assert_eq!(taken("4:memory:/\n", FIRST), Some(885));
        assert_eq!(taken("0::/\n", SECOND), Some(500));
        assert_eq!(taken("0::/gone\n", SECOND), None);
    }

    #[test]
    fn what_makes_no_sense_is_no_group() {
        let root = root(&[]);
        for (own, mounts) in [("", ""), ("x", FIRST), ("4:memory", FIRST), ("0::/", "1 2 3 - cgroup2"), ("::", SECOND)]
        {
            assert_eq!(limits(&root, own, mounts), [0; 0]);
        }
        assert!(limited_groups().iter().all(|group| group.taken().is_some()));
    }
}
