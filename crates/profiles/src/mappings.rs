//! The files that are mapped as code, and their build ids.

use std::{fs::File, os::unix::fs::FileExt as _, path::Path};

/// A range of addresses with code of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) limit: u64,
    pub(crate) offset: u64,
    pub(crate) file: String,
    /// Hexadecimal; empty if the file has none.
    pub(crate) build_id: String,
}

/// The mappings of this process with code of files. None if the system does not tell.
pub(crate) fn of_this_process() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let with_id = |mapping: Mapping| Mapping { build_id: build_id(&mapping.file).unwrap_or_default(), ..mapping };
    maps.lines().filter_map(parse).map(with_id).collect()
}

/// `START-LIMIT PERMISSIONS OFFSET DEVICE INODE    FILE`
fn parse(line: &str) -> Option<Mapping> {
    let mut words = line.split_ascii_whitespace();
    let (range, permissions, offset) = (words.next()?, words.next()?, words.next()?);
    let (start, limit) = range.split_once('-')?;
    let file = line.find('/').map(|at| &line[at..])?;
    let hex = |text| u64::from_str_radix(text, 16).ok();
    permissions.contains('x').then_some(Mapping {
        start: hex(start)?,
        limit: hex(limit)?,
        offset: hex(offset)?,
        // An update of the package replaces the file of a running program.
        file: file.trim_end_matches(" (deleted)").to_owned(),
        build_id: String::new(),
    })
}

/// From the notes of a 64-bit ELF file.
fn build_id(path: impl AsRef<Path>) -> Option<String> {
    const NOTE: u32 = 4;
    let file = File::open(path).ok()?;
    let head: [u8; 64] = read(&file, 0)?;
    if !head.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let (table, size, count) = (u64_at(&head, 32)?, u16_at(&head, 54)?, u16_at(&head, 56)?);
    (0..u64::from(count)).find_map(|index| {
        let program: [u8; 56] = read(&file, table.checked_add(index * u64::from(size))?)?;
        if u32_at(&program, 0)? != NOTE {
            return None;
        }
        let length = usize::try_from(u64_at(&program, 32)?).ok().filter(|length| *length <= NOTES_BYTES_MAX)?;
        let mut notes = vec![0; length];
        file.read_exact_at(&mut notes, u64_at(&program, 8)?).ok()?;
        build_id_of_notes(&notes)
    })
}

/// Notes are a few dozen bytes.
const NOTES_BYTES_MAX: usize = 65_536;

fn build_id_of_notes(mut notes: &[u8]) -> Option<String> {
    const BUILD_ID: u32 = 3;
    loop {
        let (name_length, length, kind) = (u32_at(notes, 0)?, u32_at(notes, 4)?, u32_at(notes, 8)?);
        let aligned = |length: u32| usize::try_from(length).ok()?.checked_next_multiple_of(4);
        let rest = notes.get(12..)?;
        let content = rest.get(aligned(name_length)?..)?;
        if kind == BUILD_ID && rest.starts_with(b"GNU\0") {
            let id = content.get(..usize::try_from(length).ok()?)?;
            let digit = |value: u8| char::from_digit(value.into(), 16);
            return id.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(digit).collect();
        }
        notes = content.get(aligned(length)?..)?;
    }
}

fn read<const N: usize>(file: &File, at: u64) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    file.read_exact_at(&mut bytes, at).ok()?;
    Some(bytes)
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_code_of_this_program_is_mapped_and_has_a_build_id() {
        let at = the_code_of_this_program_is_mapped_and_has_a_build_id as *const () as u64;
        let mappings = of_this_process();
        let own = mappings.iter().find(|mapping| (mapping.start..mapping.limit).contains(&at)).expect("code is mapped");
        assert_eq!(Path::new(&own.file), std::env::current_exe().expect("a file"));
        assert!(own.build_id.len() >= 16, "{own:?}");
    }

    #[test]
    fn lines_are_parsed() {
        let line = "55d0c000-55d0d000 r-xp 00002000 08:01 123   /usr/bin/a program (deleted)";
        let expected = Mapping {
            start: 0x55d0_c000,
            limit: 0x55d0_d000,
            offset: 0x2000,
            file: "/usr/bin/a program".to_owned(),
            build_id: String::new(),
        };
        assert_eq!(parse(line), Some(expected));
        for other in ["", "x", "0-1 rw-p 0 0:0 0 /data", "7ffd0-7ffd1 r-xp 0 0:0 0 [vdso]", "g-1 r-xp 0 0:0 0 /a"] {
            assert_eq!(parse(other), None, "{other}");
        }
    }

    #[test]
    fn notes_that_are_cut_or_lie_have_no_build_id() {
        let note = |kind: u32, name: &[u8], content: &[u8]| {
            let mut note = Vec::new();
            for number in [name.len() as u32, content.len() as u32, kind] {
                note.extend(number.to_le_bytes());
            }
            note.extend(name);
            note.extend(content);
            note
        };
        let notes = [note(1, b"GNU\0", &[1; 16]), note(3, b"GNU\0", &[0xAB, 0xCD, 1, 2])].concat();
        assert_eq!(build_id_of_notes(&notes).as_deref(), Some("abcd0102"));
        for length in 0..notes.len() {
            assert_eq!(build_id_of_notes(&notes[..length]), None, "{length}");
        }
        assert_eq!(build_id_of_notes(&[0xFF; 64]), None);
    }
}
