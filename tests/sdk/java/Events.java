package sdk;

import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;

/** Queues the events of an SDK object until the test reads them. */
final class Events {
    private final List<Object> unread = new ArrayList<>();
    private final List<Object> all = new ArrayList<>();

    synchronized void add(Object event) {
        unread.add(event);
        all.add(event);
        notifyAll();
    }

    /** The next unread event of this type; events of other types stay unread. */
    synchronized <T> T next(Class<T> type) {
        long end = System.nanoTime() + Server.DEADLINE_S * 1_000_000_000L;
        while (true) {
            for (Object event : unread) {
                if (type.isInstance(event)) {
                    unread.remove(event);
                    return type.cast(event);
                }
            }
            long leftMs = (end - System.nanoTime()) / 1_000_000;
            if (leftMs <= 0) {
                String seen = all.stream().map(event -> event.getClass().getSimpleName()).collect(Collectors.joining(", "));
                throw new AssertionError("no " + type.getSimpleName() + " within " + Server.DEADLINE_S + " s; seen: " + seen);
            }
            try {
                wait(leftMs);
            } catch (InterruptedException error) {
                throw new AssertionError(error);
            }
        }
    }

    /** How many events of this type were seen, read or not. */
    synchronized long count(Class<?> type) {
        return all.stream().filter(type::isInstance).count();
    }
}
