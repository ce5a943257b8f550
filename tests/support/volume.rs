//! A real volume of a few hundred kilobytes, mounted by the test: a disk that is full, or that can only be read.
#![allow(dead_code, reason = "each test uses a part of it")]

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::common::{tell, text};

/// Set where a test runs as a process of its own, in which it may mount.
const INSIDE: &str = "FERRATA_ON_A_VOLUME";
const MOUNTED: &str = "the volume is mounted";

/// A tmpfs. Unmounted when the test is through with it.
pub(crate) struct Volume {
    at: PathBuf,
}

impl Volume {
    fn mount(at: &Path, bytes: u64) -> Result<Self, String> {
        std::fs::create_dir_all(at).map_err(|error| error.to_string())?;
        let size = format!("size={bytes}");
        run(Command::new("mount").args(["-t", "tmpfs", "-o", &size, "ferrata-test"]).arg(at))?;
        Ok(Self { at: at.to_owned() })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.at
    }

    /// From now on it can only be read, by root as well; or written again.
    pub(crate) fn set_read_only(&self, read_only: bool) {
        let options = if read_only { "remount,bind,ro" } else { "remount,bind,rw" };
        run(Command::new("mount").args(["-o", options]).arg(&self.at)).expect("the volume is mounted again");
    }
}

impl Drop for Volume {
    fn drop(&mut self) {
        // A test that failed may still have files open: `--lazy` lets them go later.
        let _ = run(Command::new("umount").arg("--lazy").arg(&self.at));
    }
}

fn run(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{}: {error}", command.get_program().display()))?;
    if output.status.success() { Ok(()) } else { Err(text(&output).trim().to_owned()) }
}

/// Runs the rest of that test of this binary on a volume of that size. Who is not root mounts it in name spaces of its own. Where nothing can be
/// mounted at all the test says so and does nothing, and fails if `CI` is set.
pub(crate) fn on_a_volume(test: &str, bytes: u64, act: impl AsyncFnOnce(&Volume)) {
    let dir = tempfile::tempdir().expect("a folder");
    match Volume::mount(&dir.path().join("volume"), bytes) {
        Ok(volume) => {
            tell(MOUNTED);
            let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
            runtime.block_on(act(&volume));
        }
        Err(why) if std::env::var_os(INSIDE).is_none() => inside(test, &why),
        Err(why) => panic!("nothing can be mounted: {why}"),
    }
}

fn inside(test: &str, why: &str) {
    let mut command = Command::new("unshare");
    command.args(["--map-root-user", "--mount"]).arg(std::env::current_exe().expect("a test has a path"));
    let output = command.args(["--exact", test, "--nocapture"]).env(INSIDE, "1").output();
    match output.map(|output| (output.status.success(), text(&output))) {
        Ok((true, told)) if told.contains(MOUNTED) => {}
        Ok((false, told)) if told.contains(MOUNTED) => panic!("{told}"),
        _ if std::env::var_os("CI").is_none() => tell(&format!("{test} is left out: no volume can be mounted here ({why})")),
        _ => panic!("{test} needs a volume, and none can be mounted: run as root, or allow user name spaces ({why})"),
    }
}
