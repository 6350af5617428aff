package sdk;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * Numbers of publications. On one node, the publications of a channel have the offsets 1, 2, 3 and so on. In a cluster, the channels
 * of a namespace share a stream: the offsets of a channel rise and have gaps, so a publication is found by the offset that the HTTP
 * API returned for it.
 */
final class Offsets {
    private static final boolean IS_CLUSTER = System.getenv("DUNLIN_CLUSTER") != null;
    private static final Map<String, List<Long>> RECORDED = new ConcurrentHashMap<>();

    private Offsets() {}

    /** Records the offset of the channel's next publication. */
    static void record(String channel, long offset) {
        RECORDED.compute(channel, (name, before) -> {
            var offsets = before == null ? new ArrayList<Long>() : new ArrayList<>(before);
            if (IS_CLUSTER && offset <= (offsets.isEmpty() ? 0 : offsets.get(offsets.size() - 1))) {
                throw new AssertionError(channel + ": offset " + offset + " after " + offsets);
            }
            offsets.add(offset);
            return offsets;
        });
    }

    /**
     * Does it for the first count publications of a channel, which have been published without a result of their own. A history that
     * is read on another node may be some milliseconds old.
     */
    static void recordHistory(String channel, int count) {
        long end = System.nanoTime() + Server.DEADLINE_S * 1_000_000_000L;
        while (true) {
            var publications = Server.api("history", Map.of("channel", channel, "limit", -1)).getAsJsonArray("publications");
            if (publications.size() >= count) {
                publications.forEach(one -> record(channel, one.getAsJsonObject().get("offset").getAsLong()));
                return;
            }
            if (System.nanoTime() > end) {
                throw new AssertionError(channel + ": " + publications.size() + " publications of " + count);
            }
        }
    }

    /** The number of the publication with this offset: 1 is the first one of the channel, 0 none. */
    static int numberOf(String channel, long offset) {
        return IS_CLUSTER ? RECORDED.get(channel).indexOf(offset) + 1 : (int) offset;
    }

    /** The offset of the publication with this number. */
    static long offsetOf(String channel, int number) {
        return IS_CLUSTER ? RECORDED.get(channel).get(number - 1) : number;
    }
}
