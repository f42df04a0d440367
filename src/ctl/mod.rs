//! A running process is spoken to: `cushion ctl` on one side, the background thread of `libcushion.so` on the other.
//!
//! The way is a Unix socket in a directory that only its user can enter ([`directory`]), named after the process. A client
//! sends one line, `cushion-ctl 1 WORD`, and gets one line of JSON. Both sides ask the kernel who the other is and speak
//! to nobody but their own user.
//!
//! # Decision: a socket with a name, not an abstract one
//! Abstract sockets leave nothing behind, but anybody in the network namespace can connect to them, or take the name
//! first; and a process in a container of its own could not be reached from outside. Here the directory's permissions
//! come before the kernel's word about the peer.
//!
//! # Decision: off unless asked for
//! A socket is a descriptor, a file, and system calls that a program's sandbox may not allow: things that a program (or
//! a person) could notice. So a process that was merely started with `LD_PRELOAD` has none. `cushion run`, where a user
//! says that the process is to be looked after, turns it on.
//!
//! What comes over the socket is untrusted: a line is read up to [`LINE_MAX`] bytes and is one of three words or nothing.

pub mod directory;
mod server;

pub use server::{out_of_the_way, Server};

use std::ffi::OsString;
use std::io;
use std::os::unix::net::UnixStream;

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};

/// The most bytes of a request that are read.
pub const LINE_MAX: usize = 64;

/// Before the word of a request.
const GREETING: &str = "cushion-ctl 1 ";

/// What a process can be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Command {
    /// Give idle memory back.
    Trim,
    /// Write a report now.
    Report,
    /// Say how things stand.
    Stats,
}

impl Command {
    /// All of them.
    pub const ALL: [Command; 3] = [Command::Trim, Command::Report, Command::Stats];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Command::Trim => "trim",
            Command::Report => "report",
            Command::Stats => "stats",
        }
    }

    /// The line that asks for it.
    pub fn line(self) -> String {
        format!("{GREETING}{}\n", self.word())
    }
}

/// What the bytes that a client has sent so far come to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heard {
    /// A line that is not complete yet.
    Part,
    /// A request.
    Command(Command),
    /// Nothing that anybody should answer to.
    Nonsense,
}

/// Reads what a client has sent so far.
pub fn hear(bytes: &[u8]) -> Heard {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else {
        let is_hopeless = bytes.len() >= LINE_MAX;
        return if is_hopeless {
            Heard::Nonsense
        } else {
            Heard::Part
        };
    };
    let meant = |command: &Command| bytes[..=end] == *command.line().as_bytes();
    Command::ALL
        .into_iter()
        .find(meant)
        .filter(|_| bytes.len() == end + 1)
        .map_or(Heard::Nonsense, Heard::Command)
}

/// The name of a process's socket in its directory.
pub fn socket_name(pid: u32) -> OsString {
    format!("{pid}.sock").into()
}

/// Who is at the other end, by the kernel's word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// Its process, as seen from here: 0 if it is outside of this one's namespace of processes.
    pub pid: u32,
    /// Its user.
    pub uid: u32,
}

/// Asks the kernel who is at the other end.
pub fn peer(stream: &UnixStream) -> io::Result<Peer> {
    // Not rustix's, whose number of a process cannot be 0.
    let credentials = getsockopt(stream, PeerCredentials)?;
    Ok(Peer {
        pid: credentials.pid().unsigned_abs(),
        uid: credentials.uid(),
    })
}

/// This process's user.
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lines_come_whole_or_in_parts() {
        for command in Command::ALL {
            let line = command.line();
            assert!(line.len() < LINE_MAX);
            for end in 0..line.len() {
                assert_eq!(hear(&line.as_bytes()[..end]), Heard::Part);
            }
            assert_eq!(hear(line.as_bytes()), Heard::Command(command));
        }
        for nonsense in [
            "trim\n",
            "\n",
            "cushion-ctl 2 trim\n",
            "cushion-ctl 1 trim \n",
            "cushion-ctl 1 trim\ncushion-ctl 1 trim\n",
        ] {
            assert_eq!(hear(nonsense.as_bytes()), Heard::Nonsense, "{nonsense:?}");
        }
        assert_eq!(hear(&[b'x'; LINE_MAX]), Heard::Nonsense);
    }

    proptest! {
        #[test]
        fn no_bytes_upset_it(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let heard = hear(&bytes);
            prop_assert!(heard != Heard::Part || bytes.len() < LINE_MAX);
        }
    }
}
