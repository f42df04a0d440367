//! Messages with descriptors between two processes.

use std::io::{self, ErrorKind};
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// So long one side waits for the other.
const PATIENCE: Duration = Duration::from_secs(5);

/// Room for one descriptor beside a message, aligned as the kernel wants it.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Neither side waits for ever.
pub fn limit(stream: &UnixStream) -> io::Result<()> {
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))
}

/// Sends all of `bytes`, and a descriptor with the first of them.
pub fn send(stream: &UnixStream, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let (mut left, mut fd) = (bytes, fd);
    while !left.is_empty() {
        let mut part = libc::iovec {
            iov_base: left.as_ptr().cast_mut().cast(),
            iov_len: left.len(),
        };
        let mut control = Control([0; 64]);
        // SAFETY: plain data, of which zeros are a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        if let Some(fd) = fd {
            let raw = fd.as_raw_fd();
            message.msg_control = control.0.as_mut_ptr().cast();
            // SAFETY: the buffer has room for one header and one descriptor, and is aligned for the header.
            unsafe {
                message.msg_controllen = libc::CMSG_SPACE(size_of_val(&raw) as u32) as usize;
                let header = libc::CMSG_FIRSTHDR(&message);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(size_of_val(&raw) as u32) as usize;
                libc::CMSG_DATA(header)
                    .cast::<libc::c_int>()
                    .write_unaligned(raw);
            }
        }
        // SAFETY: the message and what it points to live through the call.
        let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &message, libc::MSG_NOSIGNAL) };
        match usize::try_from(sent) {
            Ok(sent) => {
                left = &left[sent..];
                fd = None;
            }
            Err(_) => retry(io::Error::last_os_error())?,
        }
    }
    Ok(())
}

/// Fills all of `bytes`; the descriptor that came with them, if one did.
pub fn receive(stream: &UnixStream, bytes: &mut [u8]) -> io::Result<Option<OwnedFd>> {
    let (mut filled, mut descriptor) = (0, None);
    while filled < bytes.len() {
        let mut part = libc::iovec {
            iov_base: bytes[filled..].as_mut_ptr().cast(),
            iov_len: bytes.len() - filled,
        };
        let mut control = Control([0; 64]);
        // SAFETY: plain data, of which zeros are a value.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_iov = &mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        // SAFETY: a size. Room for one descriptor: more of them the kernel closes.
        message.msg_controllen =
            unsafe { libc::CMSG_SPACE(size_of::<libc::c_int>() as u32) as usize };
        let flags = libc::MSG_CMSG_CLOEXEC;
        // SAFETY: the message and what it points to live through the call.
        let came = unsafe { libc::recvmsg(stream.as_raw_fd(), &mut message, flags) };
        match usize::try_from(came) {
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(came) => filled += came,
            Err(_) => {
                retry(io::Error::last_os_error())?;
                continue;
            }
        }
        // SAFETY: the kernel has filled the buffer, whose first header holds all that fits; a descriptor in it is ours.
        unsafe {
            let header = libc::CMSG_FIRSTHDR(&message);
            if !header.is_null()
                && (*header).cmsg_level == libc::SOL_SOCKET
                && (*header).cmsg_type == libc::SCM_RIGHTS
            {
                let raw = libc::CMSG_DATA(header)
                    .cast::<libc::c_int>()
                    .read_unaligned();
                descriptor = Some(OwnedFd::from_raw_fd(raw));
            }
        }
    }
    Ok(descriptor)
}

fn retry(error: io::Error) -> io::Result<()> {
    match error.kind() {
        ErrorKind::Interrupted => Ok(()),
        _ => Err(error),
    }
}
