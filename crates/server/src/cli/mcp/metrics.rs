//! A selection of the page of metrics.

use std::fmt::Write as _;

/// What is selected.
#[derive(Clone, Copy)]
pub(super) struct Selection<'a> {
    /// How the names begin; empty: only the names are listed.
    pub(super) prefix: &'a str,
    /// Whether histograms have their buckets.
    pub(super) has_buckets: bool,
    /// Maximum number of samples.
    pub(super) limit: usize,
}

/// The families of a page: their lines with `# HELP` and `# TYPE`, and their samples.
struct Family<'a> {
    name: &'a str,
    help: &'a str,
    kind: &'a str,
    samples: Vec<&'a str>,
}

/// The families that match, in the text format of Prometheus.
pub(super) fn selected(page: &str, selection: Selection<'_>) -> Result<String, String> {
    let Selection { prefix, has_buckets, limit } = selection;
    let families = families(page);
    if prefix.is_empty() {
        let mut text = String::from("# All metrics. Call again with `prefix` for their values.\n");
        for Family { name, help, kind, .. } in &families {
            let _ = writeln!(text, "{name} ({kind}): {help}");
        }
        return Ok(text);
    }
    let chosen: Vec<_> = families.iter().filter(|family| family.name.starts_with(prefix)).collect();
    if chosen.is_empty() {
        return Err("`prefix` is the beginning of no metric: call without it for the names of all".to_owned());
    }
    let (mut text, mut shown, mut of) = (String::new(), 0, 0);
    for Family { name, help, kind, samples } in chosen {
        let is_left_out = |sample: &&&str| !has_buckets && *kind == "histogram" && is_bucket(sample, name);
        let samples: Vec<_> = samples.iter().filter(|sample| !is_left_out(sample)).collect();
        let taken = samples.len().min(limit - shown);
        of += samples.len();
        if taken == 0 && !samples.is_empty() {
            continue;
        }
        shown += taken;
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for sample in samples.into_iter().take(taken) {
            let _ = writeln!(text, "{sample}");
        }
    }
    if shown < of {
        let _ = writeln!(text, "# cut: {shown} of {of} samples are shown, `limit` is {limit}: use a longer `prefix`");
    }
    Ok(text)
}

fn families(page: &str) -> Vec<Family<'_>> {
    let mut families: Vec<Family<'_>> = Vec::new();
    for line in page.lines() {
        if let Some((name, help)) = line.strip_prefix("# HELP ").and_then(|rest| rest.split_once(' ')) {
            families.push(Family { name, help, kind: "", samples: Vec::new() });
        } else if let Some(family) = families.last_mut() {
            match line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' ')) {
                Some((_, kind)) => family.kind = kind,
                None if line.starts_with('#') || line.is_empty() => {}
                None => family.samples.push(line),
            }
        }
    }
    families
}

fn is_bucket(sample: &str, name: &str) -> bool {
    sample.strip_prefix(name).is_some_and(|rest| rest.starts_with("_bucket"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: &str = "\
# HELP dunlin_users Users.
# TYPE dunlin_users gauge
dunlin_users 3
# HELP dunlin_rtt_seconds Round trips.
# TYPE dunlin_rtt_seconds histogram
dunlin_rtt_seconds_bucket{le=\"1\"} 1
dunlin_rtt_seconds_bucket{le=\"+Inf\"} 2
dunlin_rtt_seconds_sum 3
dunlin_rtt_seconds_count 2
# HELP dunlin_publications_total Publications.
# TYPE dunlin_publications_total counter
dunlin_publications_total{namespace=\"a\"} 1
dunlin_publications_total{namespace=\"b\"} 2
";

    fn select(prefix: &str, has_buckets: bool, limit: usize) -> Result<String, String> {
        selected(PAGE, Selection { prefix, has_buckets, limit })
    }

    #[test]
    fn metrics_are_selected_by_the_beginning_of_their_names() {
        let users = "# HELP dunlin_users Users.\n# TYPE dunlin_users gauge\ndunlin_users 3\n";
        assert_eq!(select("dunlin_u", false, 10).as_deref(), Ok(users));
        assert_eq!(select("dunlin_users", false, 1).as_deref(), Ok(users));
        assert!(select("prometheus", false, 10).expect_err("none").contains("`prefix` is the beginning of no metric"));
        let names = select("", false, 1).expect("all");
        assert!(names.contains("\ndunlin_rtt_seconds (histogram): Round trips.\n"), "{names}");
    }

    #[test]
    fn buckets_and_samples_beyond_the_limit_are_left_out() {
        let short = select("dunlin_rtt", false, 10).expect("it is there");
        assert!(!short.contains("_bucket") && short.contains("dunlin_rtt_seconds_count 2"), "{short}");
        assert_eq!(select("dunlin_rtt", true, 10).expect("it is there").matches("_bucket").count(), 2);
        let cut = select("dunlin", false, 2).expect("all");
        assert!(cut.ends_with("# cut: 2 of 5 samples are shown, `limit` is 2: use a longer `prefix`\n"), "{cut}");
        assert!(!select("dunlin", false, 5).expect("all").contains("cut"));
    }
}
