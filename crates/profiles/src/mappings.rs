//! The files that are mapped as code, and their build ids.

use std::{ffi::c_void, ops::Range};

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

/// A loaded program or library.
struct Loaded {
    /// Where its code is.
    code: Vec<Range<u64>>,
    build_id: String,
}

/// The mappings of this process with code of files. None if the system does not tell.
pub(crate) fn of_this_process() -> Vec<Mapping> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let all = loaded();
    let with_id = |mapping: Mapping| {
        let has_code = |code: &Range<u64>| code.start < mapping.limit && mapping.start < code.end;
        let found = all.iter().find(|one| one.code.iter().any(has_code));
        Mapping { build_id: found.map(|one| one.build_id.clone()).unwrap_or_default(), ..mapping }
    };
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

/// What is loaded now. Build ids are read from the memory of the process: an update may have replaced the files, which then have
/// other ids.
fn loaded() -> Vec<Loaded> {
    let mut all = Vec::<Loaded>::new();
    // SAFETY: the function gets the list, which nothing else uses meanwhile, and does not unwind.
    unsafe { libc::dl_iterate_phdr(Some(add_loaded), (&raw mut all).cast()) };
    all
}

/// # Safety
/// `info` must describe what is loaded, and `all` must be a list of [`Loaded`].
unsafe extern "C" fn add_loaded(info: *mut libc::dl_phdr_info, _: libc::size_t, all: *mut c_void) -> libc::c_int {
    // SAFETY: as above; the headers stay while this runs.
    let (info, all) = unsafe { (&*info, &mut *all.cast::<Vec<Loaded>>()) };
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let range = |header: &libc::Elf64_Phdr, bytes: u64| {
        let start = info.dlpi_addr.wrapping_add(header.p_vaddr);
        start..start.wrapping_add(bytes)
    };
    let of_kind = |kind| headers.iter().filter(move |header| header.p_type == kind);
    let segments = |flag| of_kind(libc::PT_LOAD).filter(move |header| header.p_flags & flag != 0);
    let code = segments(libc::PF_X).map(|header| range(header, header.p_memsz)).collect();
    let notes = of_kind(libc::PT_NOTE).map(|header| range(header, header.p_filesz));
    let is_readable = |notes: &Range<u64>| {
        let mut readable = segments(libc::PF_R).map(|header| range(header, header.p_filesz));
        notes.end - notes.start <= NOTES_BYTES_MAX
            && readable.any(|segment| segment.start <= notes.start && notes.end <= segment.end)
    };
    let build_id = notes.filter(is_readable).find_map(|notes| {
        let (start, length) = (std::ptr::with_exposed_provenance::<u8>(notes.start as usize), notes.end - notes.start);
        // SAFETY: the notes are in a segment that is mapped and readable, and nobody writes them.
        build_id_of_notes(unsafe { std::slice::from_raw_parts(start, length as usize) })
    });
    all.push(Loaded { code, build_id: build_id.unwrap_or_default() });
    0
}

/// Notes are a few dozen bytes.
const NOTES_BYTES_MAX: u64 = 65_536;

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

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use std::{path::Path, process::Command};

    use super::*;

    /// Set in the program whose file is replaced.
    const IS_REPLACED: &str = "DUNLIN_PROFILES_TEST_IS_REPLACED";

    #[test]
    fn the_code_of_this_program_is_mapped_and_has_a_build_id() {
        the_code_of_this_program_has_a_build_id(&std::env::current_exe().expect("a file"));
    }

    #[test]
    fn a_program_whose_file_was_replaced_has_its_own_build_id() {
        let program = std::env::current_exe().expect("a file");
        if std::env::var_os(IS_REPLACED).is_some() {
            std::fs::remove_file(&program).expect("it is a copy");
            std::fs::write(&program, "another one").expect("a folder");
            return the_code_of_this_program_has_a_build_id(&program);
        }
        let copy = std::env::temp_dir().join(format!("dunlin-profiles-{}", std::process::id()));
        std::fs::copy(&program, &copy).expect("a copy");
        let name = "mappings::tests::a_program_whose_file_was_replaced_has_its_own_build_id";
        let done = Command::new(&copy).args(["--exact", name]).env(IS_REPLACED, "1").output();
        std::fs::remove_file(&copy).expect("it is there");
        let done = done.expect("it starts");
        let text = String::from_utf8_lossy(&done.stdout);
        assert!(done.status.success() && text.contains("1 passed"), "{text}");
    }

    fn the_code_of_this_program_has_a_build_id(program: &Path) {
        let at = the_code_of_this_program_has_a_build_id as *const () as u64;
        let mappings = of_this_process();
        let own = mappings.iter().find(|mapping| (mapping.start..mapping.limit).contains(&at)).expect("code is mapped");
        assert_eq!(Path::new(&own.file), program);
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
