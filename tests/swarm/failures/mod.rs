//! Kills, freezes, full disks and creators that go for good.

mod faults;
mod full_disk;
mod killed_owner;
mod killed_store;
#[cfg(target_os = "linux")]
mod memory;
mod text_keeping;
