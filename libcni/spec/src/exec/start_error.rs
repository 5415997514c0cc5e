//! Why the kernel does not start a file: its own error names neither the interpreter of a script nor the loader of a program.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::errno::Errno;

/// The part of a file that is read: more than the kernel reads to find out how to start it, as an ELF file may name its
/// loader further on.
const HEAD_BYTES: u64 = 4096;

/// `PT_INTERP` of include/uapi/linux/elf.h: the segment with the loader's path.
const PT_INTERP: u64 = 3;

/// Names of processor architectures, by `e_machine` (include/uapi/linux/elf-em.h).
const MACHINES: [(u16, &str); 8] = [
    (3, "i386"),
    (21, "ppc64"),
    (22, "s390"),
    (40, "arm"),
    (62, "x86_64"),
    (183, "aarch64"),
    (243, "riscv"),
    (258, "loongarch"),
];

/// Why a file cannot be started.
pub(super) struct Unstartable {
    pub(super) cause: String,
    /// The remedy; may be empty.
    pub(super) remedy: String,
}

impl Unstartable {
    /// The cause behind the error of `execve(2)`; that error itself where the file does not show another.
    pub(super) fn find(executable: &Path, error: &io::Error) -> Self {
        let mut head = Vec::new();
        // A file that cannot be read has no cause to show.
        let read = File::open(executable).and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head));
        let errno = error.raw_os_error().map(Errno::from_raw);
        let shown = read.ok().zip(errno).and_then(|(_, errno)| match errno {
            Errno::ENOEXEC => Some(of_format(&head)),
            Errno::ENOENT | Errno::EACCES | Errno::ENOTDIR | Errno::ELOOP => {
                of_mount(executable, errno).or_else(|| of_interpreter(&head, errno)).or_else(|| of_loader(&head, errno))
            }
            _ => None,
        });
        let (cause, remedy) = shown.unwrap_or_else(|| (error.to_string(), of_mode(executable, errno)));
        Self { cause, remedy }
    }
}

/// The file begins with something that no handler of the kernel takes.
fn of_format(head: &[u8]) -> (String, String) {
    let whole = "Install the plugin anew.".to_owned();
    match (machine(head), own_machine()) {
        _ if head.is_empty() => ("exec format error: the file is empty".to_owned(), whole),
        (Some(machine), Some(own)) if machine != own => (
            format!("exec format error: it is built for {}, and this node is {}", name(machine), name(own)),
            "Install the plugin for the node's architecture.".to_owned(),
        ),
        (Some(_), _) => ("exec format error: it is an ELF file that is damaged or cut off".to_owned(), whole),
        (None, _) => (
            "exec format error: it is no ELF file, and no script that begins with #!".to_owned(),
            "Let the first line of a script name its interpreter, such as #!/bin/sh.".to_owned(),
        ),
    }
}

/// The remedy for a file that no user may execute; empty: it is another file's fault.
fn of_mode(executable: &Path, errno: Option<Errno>) -> String {
    let mode = std::fs::metadata(executable).map(|file| file.permissions().mode());
    match (errno, mode) {
        (Some(Errno::EACCES), Ok(mode)) if mode & 0o111 == 0 => {
            format!("Make it executable: chmod 755 {}", executable.display())
        }
        _ => String::new(),
    }
}

/// The file system is mounted so that nothing on it is executed.
fn of_mount(executable: &Path, errno: Errno) -> Option<(String, String)> {
    let flags = nix::sys::statvfs::statvfs(executable).ok().filter(|_| errno == Errno::EACCES)?.flags();
    flags.contains(nix::sys::statvfs::FsFlags::ST_NOEXEC).then(|| {
        (
            "permission denied: its file system is mounted noexec".to_owned(),
            "Mount it with exec, or install the plugins elsewhere and let the runtime look there.".to_owned(),
        )
    })
}

/// The file that the kernel does not find, or may not execute, is another: the interpreter of a script.
fn of_interpreter(head: &[u8], errno: Errno) -> Option<(String, String)> {
    let line = head.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    let words = String::from_utf8_lossy(line);
    // The kernel ends the name at a blank or a tab; a carriage return is a character of it.
    let interpreter = words.trim_matches([' ', '\t']).split([' ', '\t']).next()?;
    if let Some(name) = interpreter.strip_suffix('\r') {
        return Some((
            format!("its interpreter {interpreter:?} does not exist: line 1 ends with a carriage return"),
            format!("Save the file with Unix line ends, so that line 1 is #!{name} (dos2unix)."),
        ));
    }
    let (what, remedy) = match errno {
        Errno::EACCES if is_executable(interpreter) => return None,
        Errno::EACCES => ("cannot be executed", "Make it executable"),
        _ => ("does not exist", "Install it"),
    };
    Some((format!("its interpreter {interpreter} {what}"), format!("{remedy}, or correct line 1 of the file.")))
}

/// The file that the kernel does not find is the loader of a program that is linked dynamically.
fn of_loader(head: &[u8], errno: Errno) -> Option<(String, String)> {
    let loader = loader(head).filter(|_| errno == Errno::ENOENT)?;
    Some((
        format!("its ELF interpreter {loader} does not exist: it is built for another C library"),
        "Install the plugin for this node's system, or one that is linked statically.".to_owned(),
    ))
}

fn is_executable(path: &str) -> bool {
    nix::unistd::access(path, nix::unistd::AccessFlags::X_OK).is_ok()
}

/// `e_machine` of an ELF file.
fn machine(head: &[u8]) -> Option<u16> {
    let &[0x7f, b'E', b'L', b'F', _, order, ..] = head else { return None };
    let number: [u8; 2] = head.get(18..20)?.try_into().ok()?;
    Some(if order == 2 { u16::from_be_bytes(number) } else { u16::from_le_bytes(number) })
}

/// The path in segment `PT_INTERP` of an ELF file of 64 bits.
fn loader(head: &[u8]) -> Option<String> {
    let &[0x7f, b'E', b'L', b'F', 2, order, ..] = head else { return None };
    let number = |at: usize, bytes: usize| {
        let field = head.get(at..at.checked_add(bytes)?)?;
        let push = |number: u64, byte: &u8| number << 8 | u64::from(*byte);
        Some(if order == 2 { field.iter().fold(0, push) } else { field.iter().rev().fold(0, push) })
    };
    let place = |at, bytes| usize::try_from(number(at, bytes)?).ok();
    // Elf64_Ehdr: e_phoff, e_phentsize, e_phnum; Elf64_Phdr: p_type, p_offset, p_filesz.
    let (table, size, count) = (place(32, 8)?, place(54, 2)?, place(56, 2)?);
    let mut segments = (0..count).map_while(|index| table.checked_add(size * index));
    let segment = segments.find(|at| number(*at, 4) == Some(PT_INTERP))?;
    let begin = place(segment.checked_add(8)?, 8)?;
    let path = head.get(begin..begin.checked_add(place(segment.checked_add(32)?, 8)?)?)?;
    Some(String::from_utf8_lossy(path).trim_end_matches('\0').to_owned())
}

fn own_machine() -> Option<u16> {
    let mut head = Vec::new();
    File::open("/proc/self/exe").and_then(|file| file.take(HEAD_BYTES).read_to_end(&mut head)).ok()?;
    machine(&head)
}

fn name(machine: u16) -> String {
    let known = MACHINES.iter().find(|(number, _)| *number == machine);
    known.map_or_else(|| format!("machine {machine}"), |(_, name)| (*name).to_owned())
}
