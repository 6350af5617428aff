use std::sync::Arc;

use dunlin_protocol::{Payload, Publication};

use super::*;
use crate::log::LogRecord;

const NUMBER: LoadNumber = LoadNumber(1);
/// The bytes of a publication of [`records`].
const PUBLICATION_BYTES: usize = 161;

fn records(offsets: std::ops::RangeInclusive<u64>) -> Vec<LogRecord> {
    let record = |offset| {
        let data = Payload::from_json(bytes::Bytes::from_static(b"1"));
        let (tags, epoch) = (Vec::new(), Box::default());
        let publication = Arc::new(Publication { data, info: None, offset, tags, time_ms: 0, epoch, version: 0 });
        LogRecord { publication, version_epoch: Box::default(), idempotency_key: None }
    };
    offsets.map(record).collect()
}

fn page(floor: u64, through: u64, top: u64) -> LogPage {
    LogPage { epoch: "e".into(), top, floor, through, records: records(floor + 1..=through), ..LogPage::default() }
}

fn next(gathered: Result<Gathered, LogError>) -> LoadQuery {
    match gathered {
        Ok(Gathered::More(query)) => query,
        other => panic!("{other:?}"),
    }
}

fn whole(gathered: Result<Gathered, LogError>) -> (u64, u64, Vec<u64>) {
    match gathered {
        Ok(Gathered::Enough(page)) => {
            let offsets = page.records.iter().map(|record| record.publication.offset).collect();
            (page.floor, page.through, offsets)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn pages_above_an_offset_are_read_to_the_tail() {
    let mut load = PageLoad::new(NUMBER, LoadQuery::after(2, 1_000));
    let query = next(load.gather(page(2, 4, 9), 8));
    assert_eq!((query.after, query.publications_max), (Some(4), 998));
    assert_eq!(load.bytes(), 2 * PUBLICATION_BYTES);
    assert_eq!(next(load.gather(page(4, 7, 9), 8)).after, Some(7));
    assert_eq!(whole(load.gather(page(7, 8, 9), 8)), (2, 8, (3..=8).collect()));
    assert_eq!(load.bytes(), 0, "the page is passed on");
}

#[test]
fn pages_below_an_offset_are_read_to_the_start() {
    let mut load = PageLoad::new(NUMBER, LoadQuery { below: 9, ..LoadQuery::newest(1_000) });
    let query = next(load.gather(LogPage { has_more_below: true, ..page(5, 8, 20) }, 15));
    assert_eq!((query.after, query.below, query.publications_max), (None, 6, 997));
    assert_eq!(whole(load.gather(page(2, 5, 20), 15)), (2, 8, (3..=8).collect()));
}

#[test]
fn a_load_ends_at_its_limits() {
    let at_the_limit = PageLoad::new(NUMBER, LoadQuery::after(0, 3)).gather(page(0, 3, 9), 8);
    assert_eq!(whole(at_the_limit).1, 3);
    let mut load = PageLoad::new(NUMBER, LoadQuery::after(0, 4));
    assert_eq!(next(load.gather(page(0, 3, 9), 8)).publications_max, 1);
    let bytes_max = 2 * PUBLICATION_BYTES;
    let mut load = PageLoad::new(NUMBER, LoadQuery::after(0, 100).within(bytes_max));
    assert_eq!(next(load.gather(page(0, 2, 9), 8)).bytes_max, 1, "the one that does not fit is needed to say so");
    assert_eq!(whole(load.gather(page(2, 3, 9), 8)).1, 3);
}

#[test]
fn what_the_log_deletes_meanwhile_is_left_out() {
    let mut load = PageLoad::new(NUMBER, LoadQuery::after(0, 100));
    next(load.gather(page(0, 2, 9), 8));
    assert_eq!(whole(load.gather(page(5, 9, 9), 8)), (5, 9, (6..=9).collect()));
    let mut load = PageLoad::new(NUMBER, LoadQuery::newest(100));
    next(load.gather(LogPage { has_more_below: true, ..page(5, 8, 8) }, 8));
    let of_next_epoch = LogPage { epoch: "f".into(), ..page(0, 0, 0) };
    assert_eq!(whole(load.gather(of_next_epoch, 8)), (5, 8, (6..=8).collect()));
}

#[test]
fn a_log_that_repeats_itself_or_stops_is_refused() {
    let mut load = PageLoad::new(NUMBER, LoadQuery::after(0, 100));
    assert!(matches!(load.gather(LogPage { records: Vec::new(), ..page(0, 0, 9) }, 8), Err(LogError::Unavailable)));
    let mut load = PageLoad::new(NUMBER, LoadQuery::newest(100));
    let newest = LogPage { has_more_below: true, ..page(5, 8, 8) };
    next(load.gather(newest.clone(), 8));
    assert!(matches!(load.gather(newest, 8), Err(LogError::Unavailable)));
}
