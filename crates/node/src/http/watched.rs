//! What files say, read again when they change.

use std::fs;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};

/// How often files are looked at.
const PACE: Duration = Duration::from_secs(1);

/// Times of change and lengths.
type Stamps = Vec<Option<(SystemTime, u64)>>;

/// What is read of some files.
pub(super) struct Watched<T> {
    files: Vec<PathBuf>,
    read: Box<dyn Fn() -> Result<T, String> + Send + Sync>,
    last: Mutex<Last<T>>,
}

struct Last<T> {
    value: T,
    stamps: Stamps,
    looked: Instant,
}

impl<T: Clone> Watched<T> {
    /// Reads the files.
    ///
    /// # Errors
    /// What `read` finds wrong.
    pub(super) fn new(
        files: Vec<PathBuf>,
        read: impl Fn() -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Self, String> {
        // Before they are read: what changes meanwhile is read again.
        let stamps = stamps(&files);
        let last = Last { value: read()?, stamps, looked: Instant::now() };
        Ok(Self { files, read: Box::new(read), last: Mutex::new(last) })
    }

    /// What they say now, or have said within a second. Files that are wrong are told of once; what they said before holds.
    pub(super) fn value(&self) -> T {
        self.value_at(Instant::now())
    }

    fn value_at(&self, now: Instant) -> T {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now.saturating_duration_since(last.looked) >= PACE {
            last.looked = now;
            let stamps = stamps(&self.files);
            if stamps != last.stamps {
                last.stamps = stamps;
                match (self.read)() {
                    Ok(value) => {
                        tracing::info!(files = ?self.files, "read again");
                        last.value = value;
                    }
                    Err(why) => tracing::error!(%why, "what was read before holds"),
                }
            }
        }
        last.value.clone()
    }
}

fn stamps(files: &[PathBuf]) -> Stamps {
    let stamp = |file: &PathBuf| {
        let found = fs::metadata(file).ok()?;
        Some((found.modified().ok()?, found.len()))
    };
    files.iter().map(stamp).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_again_when_it_changes_and_is_right() {
        let file = std::env::temp_dir().join(format!("kaido-watched-{}", std::process::id()));
        let parse = {
            let file = file.clone();
            move || {
                let text = fs::read_to_string(&file).map_err(|error| error.to_string())?;
                text.parse::<u32>().map_err(|error| error.to_string())
            }
        };
        assert!(Watched::new(vec![file.clone()], parse.clone()).is_err(), "there is none");
        fs::write(&file, "7").unwrap();
        let watched = Watched::new(vec![file.clone()], parse).unwrap();
        let later = |seconds| Instant::now() + Duration::from_secs(seconds);
        fs::write(&file, "1234").unwrap();
        assert_eq!(watched.value_at(later(0)), 7, "not looked at again so soon");
        assert_eq!(watched.value_at(later(10)), 1234);
        fs::write(&file, "no number").unwrap();
        assert_eq!(watched.value_at(later(20)), 1234);
        fs::remove_file(&file).unwrap();
        assert_eq!(watched.value_at(later(30)), 1234);
    }
}
