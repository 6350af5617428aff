package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static sdk.Server.api;
import static sdk.Server.channelIn;
import static sdk.Server.publish;

import io.github.centrifugal.centrifuge.PublicationEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribingEvent;
import io.github.centrifugal.centrifuge.SubscriptionOptions;
import java.util.Map;
import org.junit.jupiter.api.Test;

class RecoveryTest extends Scenario {
    private final Proxy proxy = proxy();

    /** A subscription through the proxy, disconnected after the first `seen` publications. */
    private Sub cutOff(String namespace, int seen, Set<SubscriptionOptions> set) {
        String channel = channelIn(namespace);
        var sub = subscribed(client(proxy.url(), options -> {}).connect(), channel, set);
        publish(channel, 1, seen);
        numbers(sub, 1, seen);
        sub.events.next(SubscribingEvent.class);
        cutAgain(sub);
        return sub;
    }

    private Sub cutOff(String namespace, int seen) {
        return cutOff(namespace, seen, options -> {});
    }

    private void cutAgain(Sub sub) {
        proxy.cut();
        sub.events.next(SubscribingEvent.class);
    }

    /** Expects the subscription to resubscribe with recovery, successful or not. */
    private void back(Sub sub, boolean recovered) {
        proxy.restore();
        var event = sub.events.next(SubscribedEvent.class);
        assertTrue(event.wasRecovering());
        assertEquals(recovered, event.getRecovered());
    }

    @Test
    void everyPublicationMissedComesOnceAndInOrder() {
        var sub = cutOff("history", 2);
        publish(sub.channel(), 3, 12);
        back(sub, true);
        publish(sub.channel(), 13, 13);
        numbers(sub, 3, 13);
        assertEquals(13, sub.events.count(PublicationEvent.class));
    }

    @Test
    void publicationsArrivingMeanwhileAreNeitherLostNorDoubled() {
        var sub = cutOff("history", 1);
        proxy.restore();
        publish(sub.channel(), 2, 60);
        numbers(sub, 2, 60);
    }

    @Test
    void nothingMissedIsRecoveredAsWell() {
        var sub = cutOff("history", 3);
        back(sub, true);
        publish(sub.channel(), 4, 4);
        numbers(sub, 4, 4);
    }

    @Test
    void moreMissedThanTheHistoryHoldsIsNotRecovered() {
        var sub = cutOff("small", 1);
        publish(sub.channel(), 2, 6);
        back(sub, false);
        publish(sub.channel(), 7, 7);
        numbers(sub, 7, 7);
    }

    @Test
    void asManyMissedAsTheHistoryHoldsIsRecovered() {
        var sub = cutOff("small", 1);
        publish(sub.channel(), 2, 3);
        back(sub, true);
        numbers(sub, 2, 3);
    }

    @Test
    void aHistoryRemovedMeanwhileIsNotRecovered() {
        var sub = cutOff("history", 1);
        publish(sub.channel(), 2, 3);
        api("history_remove", Map.of("channel", sub.channel()));
        back(sub, false);
    }

    @Test
    void aSubscriptionThatAskedForItRecovers() {
        var sub = cutOff("optional", 1, options -> options.setRecoverable(true));
        publish(sub.channel(), 2, 3);
        back(sub, true);
        numbers(sub, 2, 3);
    }

    @Test
    void fromACacheOnlyTheNewestComes() {
        var sub = cutOff("cache", 1);
        publish(sub.channel(), 2, 5);
        back(sub, true);
        numbers(sub, 5, 5);
        cutAgain(sub);
        back(sub, true);
        publish(sub.channel(), 6, 6);
        numbers(sub, 6, 6);
        assertEquals(3, sub.events.count(PublicationEvent.class));
    }
}
