//! systemd's journal, by its own protocol (systemd.io/JOURNAL_NATIVE_PROTOCOL): each event is an entry.
//!
//! The text of an entry has the event's fields, as `journalctl` shows nothing else, and the entry has each of them by name too, for
//! `journalctl KAIDO_PORT=n3`. (`tracing-journald` leaves them out of the text.)

use std::fmt::{Debug, Write as _};
use std::io::{self, ErrorKind};
use std::os::unix::net::UnixDatagram;
use std::time::Duration;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::FormatFields;
use tracing_subscriber::fmt::format::{DefaultFields, Writer};
use tracing_subscriber::layer::Context;

/// Where journald listens.
const SOCKET: &str = "/run/systemd/journal/socket";
/// How long an entry waits for a journald that does not read.
const PATIENCE: Duration = Duration::from_millis(100);
/// Octets of a value at most, so that an entry fits into a datagram.
const VALUE_MAX: usize = 16 << 10;

/// A layer that writes to the journal.
#[derive(Debug)]
pub(crate) struct Journal {
    socket: UnixDatagram,
}

impl Journal {
    /// The journal of this host.
    ///
    /// # Errors
    /// Where there is none.
    pub(crate) fn open() -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.set_write_timeout(Some(PATIENCE))?;
        // journald ignores an entry without fields.
        socket.send_to(&[], SOCKET)?;
        Ok(Self { socket })
    }
}

impl<S: Subscriber> Layer<S> for Journal {
    fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
        // What cannot be logged cannot be told either.
        let entry = Entry::of(event).0;
        // A wait with a limit ends when the process is stopped and goes on.
        while matches!(self.socket.send_to(&entry, SOCKET), Err(error) if error.kind() == ErrorKind::Interrupted)
        {
        }
    }
}

/// An entry, as it is sent.
struct Entry(Vec<u8>);

impl Entry {
    fn of(event: &Event<'_>) -> Self {
        let about = event.metadata();
        let mut text = String::new();
        // A `String` takes all.
        let _ = DefaultFields::new().format_fields(Writer::new(&mut text), event);
        let mut entry = Self(Vec::with_capacity(512));
        entry.put("MESSAGE", &text);
        entry.put("PRIORITY", priority(*about.level()));
        entry.put("SYSLOG_IDENTIFIER", "kaido");
        entry.put("TARGET", about.target());
        if let Some((file, line)) = about.file().zip(about.line()) {
            entry.put("CODE_FILE", file);
            entry.put("CODE_LINE", &line.to_string());
        }
        event.record(&mut entry);
        entry
    }

    /// Adds a field. Its value may have lines, so its length is written before it.
    fn put(&mut self, name: &str, value: &str) {
        let value = cut(value);
        self.0.extend_from_slice(name.as_bytes());
        self.0.push(b'\n');
        self.0.extend_from_slice(&(value.len() as u64).to_le_bytes());
        self.0.extend_from_slice(value.as_bytes());
        self.0.push(b'\n');
    }
}

impl Visit for Entry {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            return;
        }
        let mut name = "KAIDO_".to_owned();
        // journald takes no other characters.
        name.extend(
            field
                .name()
                .chars()
                .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' }),
        );
        self.put(&name, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let mut text = String::new();
        let _ = write!(text, "{value:?}");
        self.record_str(field, &text);
    }
}

/// What of a value is sent.
fn cut(value: &str) -> &str {
    let end = (0..=VALUE_MAX.min(value.len())).rev().find(|end| value.is_char_boundary(*end));
    &value[..end.unwrap_or(0)]
}

/// As syslog has them: what is of interest to nobody but its author is debug.
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        Level::DEBUG | Level::TRACE => "7",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    /// Keeps entries.
    struct Kept(Arc<Mutex<Vec<Vec<u8>>>>);

    impl<S: Subscriber> Layer<S> for Kept {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            self.0.lock().unwrap().push(Entry::of(event).0);
        }
    }

    /// The fields of an entry.
    fn fields(mut entry: &[u8]) -> Vec<(String, String)> {
        let mut found = Vec::new();
        while let Some(end) = entry.iter().position(|octet| *octet == b'\n') {
            let (name, rest) = (&entry[..end], &entry[end + 1..]);
            let (len, rest) = rest.split_first_chunk().unwrap();
            let (value, rest) = rest.split_at(usize::try_from(u64::from_le_bytes(*len)).unwrap());
            assert_eq!(rest[0], b'\n');
            found.push((String::from_utf8(name.into()).unwrap(), String::from_utf8(value.into()).unwrap()));
            entry = &rest[1..];
        }
        assert!(entry.is_empty());
        found
    }

    fn logged(log: impl FnOnce()) -> Vec<(String, String)> {
        let kept = Arc::default();
        let subscriber = tracing_subscriber::registry().with(Kept(Arc::clone(&kept)));
        tracing::subscriber::with_default(subscriber, log);
        let entries = kept.lock().unwrap();
        assert_eq!(entries.len(), 1);
        fields(&entries[0])
    }

    #[test]
    fn an_entry_has_its_fields_in_the_text_and_by_name() {
        let found = logged(|| tracing::warn!(port = "n3", in_use = 7, error.kind = ?Some("b\nc"), "a\nport"));
        let value = |name: &str| found.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let text = "a\nport port=\"n3\" in_use=7 error.kind=Some(\"b\\nc\")";
        assert_eq!((value("MESSAGE"), value("PRIORITY")), (Some(text), Some("4")));
        assert_eq!((value("KAIDO_PORT"), value("KAIDO_IN_USE")), (Some("n3"), Some("7")));
        assert_eq!((value("KAIDO_ERROR_KIND"), value("KAIDO_MESSAGE")), (Some("Some(\"b\\nc\")"), None));
        assert_eq!((value("TARGET"), value("SYSLOG_IDENTIFIER")), (Some(module_path!()), Some("kaido")));
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        let long = "ä".repeat(VALUE_MAX);
        let found = logged(|| tracing::info!(long, "b"));
        assert!(found.iter().any(|(name, value)| name == "KAIDO_LONG" && value.len() == VALUE_MAX));
        assert!(found.iter().all(|(_, value)| value.len() <= VALUE_MAX));
    }
}
