//! The side that is spoken to. Whoever owns a [`Server`] calls [`Server::serve`] now and then; nothing here ever waits.
//!
//! # Decision: a descriptor that the program may take away
//! The listening socket is the one descriptor that is kept. It has a high number, so that those of the program's own
//! files are what they would be, and before each use it is checked to be the same socket still: a program that closes
//! what it has not opened would otherwise lose connections of a socket of its own. It is closed only by the process's
//! end.

use std::fs;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::net::SendFlags;

use super::{directory, hear, own_uid, peer, socket_name, Command, Heard, LINE_MAX};

/// So many clients are listened to at a time; more are turned away.
const CLIENTS_MAX: usize = 4;
/// A client that has not got its answer by then is turned away.
const PATIENCE: Duration = Duration::from_secs(2);
/// The least number that the descriptor gets, if the process may have so many.
const LEAST_DESCRIPTOR: RawFd = 800;

/// Gives a listener a high number, so that those of the program's own files are what they would be.
pub fn out_of_the_way(listener: UnixListener) -> UnixListener {
    let high = rustix::io::fcntl_dupfd_cloexec(&listener, LEAST_DESCRIPTOR);
    high.map_or(listener, UnixListener::from)
}

/// No signal when the client has gone, and no wait.
const QUIETLY: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

/// The socket of one process, and those who speak to it.
#[derive(Debug)]
pub struct Server {
    listener: ManuallyDrop<UnixListener>,
    identity: (u64, u64),
    path: PathBuf,
    clients: Vec<Client>,
}

#[derive(Debug)]
struct Client {
    stream: UnixStream,
    since: Instant,
    heard: Vec<u8>,
    /// What is still to be sent, once it was asked for.
    answer: Option<Vec<u8>>,
}

/// How a client stands.
enum Standing {
    Waits,
    Asks(Command),
    Done,
}

impl Server {
    /// Listens in the first of `directories` that will do.
    ///
    /// # Errors
    /// Why the last of them would not.
    pub fn open(directories: &[PathBuf], pid: u32) -> io::Result<Server> {
        let mut outcome = Err(io::ErrorKind::NotFound.into());
        for directory in directories {
            outcome = Server::open_in(directory, pid);
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn open_in(directory: &Path, pid: u32) -> io::Result<Server> {
        directory::make(directory, own_uid())?;
        let path = directory.join(socket_name(pid));
        let listener = match UnixListener::bind(&path) {
            // Left by a process of the same number that was killed or became another program.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
                if UnixStream::connect(&path).is_ok() {
                    return Err(error);
                }
                fs::remove_file(&path)?;
                UnixListener::bind(&path)?
            }
            outcome => outcome?,
        };
        let listener = out_of_the_way(listener);
        listener.set_nonblocking(true)?;
        let identity = identity(&listener)?;
        Ok(Server {
            listener: ManuallyDrop::new(listener),
            identity,
            path,
            clients: Vec::new(),
        })
    }

    /// The descriptor, with device and inode of the socket.
    pub fn descriptor(&self) -> (RawFd, (u64, u64)) {
        (self.listener.as_raw_fd(), self.identity)
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Hears who has come and answers what they ask, without waiting for any of them. `answer` gives one line of text
    /// without its end. Whether somebody is left who should be heard again soon.
    ///
    /// # Errors
    /// The socket is no more.
    pub fn serve(&mut self, mut answer: impl FnMut(Command) -> String) -> io::Result<bool> {
        if identity(&*self.listener)? != self.identity {
            return Err(io::ErrorKind::NotFound.into());
        }
        while let Ok((stream, _)) = self.listener.accept() {
            let is_own = peer(&stream).is_ok_and(|peer| peer.uid == own_uid());
            if is_own && self.clients.len() < CLIENTS_MAX && stream.set_nonblocking(true).is_ok() {
                self.clients.push(Client {
                    stream,
                    since: Instant::now(),
                    heard: Vec::new(),
                    answer: None,
                });
            }
        }
        self.clients.retain_mut(|client| loop {
            match client.stand() {
                Standing::Waits => break client.since.elapsed() < PATIENCE,
                Standing::Asks(command) => {
                    let mut line = answer(command).into_bytes();
                    line.push(b'\n');
                    client.answer = Some(line);
                }
                Standing::Done => break false,
            }
        });
        Ok(!self.clients.is_empty())
    }
}

impl Client {
    fn stand(&mut self) -> Standing {
        if let Some(answer) = &mut self.answer {
            while !answer.is_empty() {
                match rustix::net::send(&self.stream, answer, QUIETLY) {
                    Ok(count) if count > 0 => drop(answer.drain(..count)),
                    Err(rustix::io::Errno::AGAIN) => return Standing::Waits,
                    _ => break,
                }
            }
            return Standing::Done;
        }
        let mut buffer = [0; LINE_MAX];
        loop {
            match self.stream.read(&mut buffer) {
                Ok(count) if count > 0 => self.heard.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Standing::Waits,
                _ => return Standing::Done,
            }
            match hear(&self.heard) {
                Heard::Part => {}
                Heard::Command(command) => return Standing::Asks(command),
                Heard::Nonsense => return Standing::Done,
            }
        }
    }
}

fn identity(socket: impl AsFd) -> io::Result<(u64, u64)> {
    let stat = rustix::fs::fstat(socket)?;
    Ok((stat.st_dev, stat.st_ino))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn opened(directory: &tempfile::TempDir) -> Server {
        Server::open(&[directory.path().join("own")], 7).unwrap()
    }

    fn connected(server: &Server) -> UnixStream {
        UnixStream::connect(server.path()).unwrap()
    }

    fn until_nobody_waits(server: &mut Server) {
        while server
            .serve(|command| command.word().to_uppercase())
            .unwrap()
        {
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn all(mut stream: UnixStream) -> String {
        let mut text = String::new();
        // A reset is as good as an end to one that was turned away.
        let _ = stream.read_to_string(&mut text);
        text
    }

    #[test]
    fn an_answer_is_one_line() {
        let directory = tempfile::tempdir().unwrap();
        let mut server = opened(&directory);
        let mut slow = connected(&server);
        let mut quick = connected(&server);
        quick.write_all(Command::Stats.line().as_bytes()).unwrap();
        for byte in Command::Trim.line().bytes() {
            slow.write_all(&[byte]).unwrap();
            server
                .serve(|command| command.word().to_uppercase())
                .unwrap();
        }
        until_nobody_waits(&mut server);
        assert_eq!((all(quick), all(slow)), ("STATS\n".into(), "TRIM\n".into()));
    }

    #[test]
    fn those_who_hang_or_talk_nonsense_hold_nobody_up() {
        let directory = tempfile::tempdir().unwrap();
        let mut server = opened(&directory);
        let silent: Vec<UnixStream> = (0..CLIENTS_MAX - 1).map(|_| connected(&server)).collect();
        let started = Instant::now();
        assert!(server.serve(|_| unreachable!()).unwrap());
        let mut noisy = connected(&server);
        noisy.write_all(&[b'x'; 100_000]).unwrap();
        server.serve(|_| unreachable!()).unwrap();
        drop(noisy);
        let mut quick = connected(&server);
        quick.write_all(Command::Report.line().as_bytes()).unwrap();
        server.serve(|_| "there".into()).unwrap();
        assert_eq!(all(quick), "there\n");
        assert!(started.elapsed() < PATIENCE);
        until_nobody_waits(&mut server);
        assert!(started.elapsed() >= PATIENCE);
        silent
            .into_iter()
            .for_each(|stream| assert_eq!(all(stream), ""));
    }

    #[test]
    fn one_who_does_not_read_is_turned_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut server = opened(&directory);
        let mut deaf = connected(&server);
        deaf.write_all(Command::Stats.line().as_bytes()).unwrap();
        let long = "x".repeat(4 << 20);
        let started = Instant::now();
        while server.serve(|_| long.clone()).unwrap() {
            assert!(started.elapsed() < 3 * PATIENCE);
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(all(deaf).len() < long.len());
    }

    #[test]
    fn more_than_it_can_hear_are_turned_away() {
        let directory = tempfile::tempdir().unwrap();
        let mut server = opened(&directory);
        let many: Vec<UnixStream> = (0..20).map(|_| connected(&server)).collect();
        server.serve(|_| unreachable!()).unwrap();
        assert_eq!(server.clients.len(), CLIENTS_MAX);
        drop(many);
        assert!(!server.serve(|_| unreachable!()).unwrap());
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let directory = tempfile::tempdir().unwrap();
        let first = opened(&directory);
        assert!(Server::open(&[directory.path().join("own")], 7).is_err());
        drop(ManuallyDrop::into_inner(first.listener));
        let mut second = opened(&directory);
        assert!(second.descriptor().0 >= LEAST_DESCRIPTOR);
        let mut client = connected(&second);
        client.write_all(Command::Trim.line().as_bytes()).unwrap();
        until_nobody_waits(&mut second);
        assert_eq!(all(client), "TRIM\n");
    }

    #[test]
    fn the_next_directory_is_taken_when_one_will_not_do() {
        let directory = tempfile::tempdir().unwrap();
        let long = directory.path().join("x".repeat(120));
        let places = [
            directory.path().join("no/such"),
            long,
            directory.path().join("own"),
        ];
        let server = Server::open(&places, 9).unwrap();
        assert_eq!(server.path(), directory.path().join("own/9.sock"));
        assert!(Server::open(&places[..2], 9).is_err());
    }
}
