use dunlin_protocol::{Payload, SubscribeResult};

use super::*;

fn publications(offsets: impl Iterator<Item = u64>, data_bytes: usize) -> Vec<Arc<Publication>> {
    let data = || Payload::from_opaque(vec![b'1'; data_bytes].into());
    let publication = |offset| Publication {
        data: data(),
        info: None,
        offset,
        tags: Vec::new(),
        time_ms: 0,
        epoch: Box::default(),
        version: 0,
    };
    offsets.map(|offset| Arc::new(publication(offset))).collect()
}

fn encoded(publications: Vec<Arc<Publication>>) -> Arc<EncodedPublications> {
    let result = SubscribeResult { publications, ..SubscribeResult::default() };
    Arc::new(EncodedPublications::new(Encoding::Protobuf, &result).expect("anything goes"))
}

fn span(first: u64, last: u64) -> Span {
    Span::of(&publications(first..=last, 1), "epoch", Encoding::Protobuf, false).expect("no gap")
}

fn keep(answers: &mut Answers, channel: &str, first: u64, data_bytes: usize) -> bool {
    answers.keep(&channel.into(), span(first, first), &encoded(publications(first..=first, data_bytes)))
}

#[test]
fn a_span_has_the_number_of_its_publications() {
    let of = |offsets: &[u64]| Span::of(&publications(offsets.iter().copied(), 1), "a", Encoding::Json, false);
    assert_eq!(of(&[]), None);
    assert!(of(&[3]).is_some() && of(&[1, 2, 3]).is_some());
    assert_ne!(of(&[1, 3]), of(&[1, 2, 3]));
}

#[test]
fn spans_that_differ_in_any_field_share_no_answer() {
    let mut answers = Answers::default();
    assert!(keep(&mut answers, "news", 1, 1));
    assert!(answers.find("news", &span(1, 1)).is_some());
    assert!(answers.find("sport", &span(1, 1)).is_none());
    let others = [
        Span { epoch: "other".into(), ..span(1, 1) },
        Span { first: 0, ..span(1, 1) },
        Span { last: 2, ..span(1, 1) },
        Span { count: 2, ..span(1, 1) },
        Span { encoding: Encoding::Json, ..span(1, 1) },
        Span { delta: true, ..span(1, 1) },
    ];
    assert!(others.iter().all(|span| answers.find("news", span).is_none()));
}

#[test]
fn cached_answers_are_limited_and_used_ones_stay() {
    let mut answers = Answers::default();
    for first in 1..=ANSWERS_MAX as u64 {
        assert!(keep(&mut answers, "news", first, 1));
    }
    assert_eq!(answers.kept()[0], ANSWERS_MAX);
    assert!(answers.find("news", &span(1, 1)).is_some(), "at the limit");
    assert!(keep(&mut answers, "news", 1_000, 1));
    assert_eq!(answers.kept()[0], ANSWERS_MAX, "one past the limit");
    assert!(answers.find("news", &span(1, 1)).is_some(), "the recently used answer stays");
    assert!(answers.find("news", &span(2, 2)).is_none(), "the least recently used answer is evicted");
}

#[test]
fn bytes_of_cached_answers_are_limited() {
    let mut answers = Answers::default();
    let overhead = encoded(publications(1..=1, ANSWERS_BYTES_MAX)).bytes().len() - ANSWERS_BYTES_MAX;
    let bytes_max = ANSWERS_BYTES_MAX - overhead;
    assert!(keep(&mut answers, "news", 1, 1));
    assert!(keep(&mut answers, "news", 2, bytes_max), "as large as may be");
    assert_eq!(answers.kept(), [1, ANSWERS_BYTES_MAX]);
    assert!(!keep(&mut answers, "news", 3, bytes_max + 1), "one byte past that");
    assert_eq!(answers.kept(), [1, ANSWERS_BYTES_MAX]);
    answers.forget("sport");
    assert_eq!(answers.kept(), [1, ANSWERS_BYTES_MAX]);
    answers.forget("news");
    assert_eq!(answers.kept(), [0, 0]);
}
