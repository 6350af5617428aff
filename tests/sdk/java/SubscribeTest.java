package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static sdk.Offsets.numberOf;
import static sdk.Server.api;
import static sdk.Server.assertJson;
import static sdk.Server.channelIn;
import static sdk.Server.inSeconds;
import static sdk.Server.newUser;
import static sdk.Server.publish;
import static sdk.Server.signed;
import static sdk.Server.token;

import io.github.centrifugal.centrifuge.ClientState;
import io.github.centrifugal.centrifuge.JoinEvent;
import io.github.centrifugal.centrifuge.ServerPublicationEvent;
import io.github.centrifugal.centrifuge.ServerSubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribedEvent;
import io.github.centrifugal.centrifuge.SubscribingEvent;
import io.github.centrifugal.centrifuge.SubscriptionOptions;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.MethodSource;
import org.junit.jupiter.params.provider.Arguments;

class SubscribeTest extends Scenario {
    @Test
    void toAPlainChannelAndLeaveIt() {
        var sub = subscribed(connected(), channelIn("open"));
        assertFalse(sub.event.getPositioned());
        assertFalse(sub.event.getRecoverable());
        assertFalse(sub.event.wasRecovering());
        sub.subscription.unsubscribe();
        refused(sub, 0);
        sub.subscription.subscribe();
        sub.events.next(SubscribedEvent.class);
    }

    static List<Arguments> refusedChannels() {
        return List.of(
                Arguments.of("an unknown namespace", channelIn("nowhere"), 102),
                Arguments.of("a namespace that allows nothing", channelIn("closed"), 103),
                Arguments.of("no namespace when anonymous", newUser(), 103),
                Arguments.of("a private channel without token", "$" + channelIn("open"), 103),
                Arguments.of("another user's channel", channelIn("users") + "#somebody", 103),
                Arguments.of("a name that is too long", "open:" + "x".repeat(251), 107),
                Arguments.of("a name with letters beyond ASCII", channelIn("open") + "é", 107));
    }

    @ParameterizedTest(name = "{0}")
    @MethodSource("refusedChannels")
    void toThisIsRefused(String what, String channel, int code) {
        var session = connected();
        refused(subscription(session, channel), code);
        assertEquals(ClientState.CONNECTED, session.client.getState());
    }

    @Test
    void to128ChannelsThe129thIsRefused() {
        var session = connected();
        var subs = new ArrayList<Sub>();
        for (int i = 0; i < 128; i++) {
            subs.add(subscription(session, channelIn("open")));
        }
        subs.forEach(sub -> sub.events.next(SubscribedEvent.class));
        refused(subscription(session, channelIn("open")), 106);
    }

    @Test
    void onTheServerSideByTheToken105ForASecondTime() {
        String channel = channelIn("history");
        var session = connected(options -> options.setToken(token(Map.of("sub", newUser(), "channels", List.of(channel)))));
        var subscribed = session.events.next(ServerSubscribedEvent.class);
        assertEquals(channel, subscribed.getChannel());
        assertEquals(true, subscribed.getRecoverable());
        publish(channel, 1, 1);
        var publication = session.events.next(ServerPublicationEvent.class);
        assertEquals(channel, publication.getChannel());
        assertEquals(1, numberOf(channel, publication.getOffset()));
        refused(subscription(session, channel), 105);
    }

    @Test
    void positionedRecoverableAndJoinLeaveOnlyWhenAskedFor() {
        var session = connected();
        assertEquals(List.of(false, false), flags(session, options -> {}));
        assertEquals(List.of(true, false), flags(session, options -> options.setPositioned(true)));
        assertEquals(List.of(true, true), flags(session, options -> options.setRecoverable(true)));
        var joins = subscribed(session, channelIn("optional"), options -> options.setJoinLeave(true));
        assertEquals(session.id, joins.events.next(JoinEvent.class).getInfo().getClient());
    }

    private List<Boolean> flags(Session session, Set<SubscriptionOptions> set) {
        var event = subscribed(session, channelIn("optional"), set).event;
        return List.of(event.getPositioned(), event.getRecoverable());
    }

    @Test
    void aTokenOpensAClosedChannelAndCarriesInfoAndData() {
        String user = newUser();
        String channel = "$" + channelIn("closed");
        var session = as(user);
        Map<String, ?> claims =
                Map.of("sub", user, "channel", channel, "info", Map.of("role", "admin"), "data", Map.of("welcome", true));
        var sub = subscribed(session, channel, options -> options.setToken(token(claims)));
        assertJson(Map.of("welcome", true), sub.event.getData());
        var present = api("presence", Map.of("channel", channel)).getAsJsonObject("presence").getAsJsonObject(session.id);
        assertEquals(user, present.get("user").getAsString());
        assertJson(Map.of("role", "admin"), present.get("chan_info"));
    }

    @Test
    void withoutATokenTheSdkAsksForOne() {
        String user = newUser();
        String channel = channelIn("closed");
        var asked = new AtomicInteger();
        subscribed(as(user), channel, options -> options.setTokenGetter(subscriptionTokens(() -> {
            asked.incrementAndGet();
            return token(Map.of("sub", user, "channel", channel, "exp", inSeconds(600)));
        })));
        assertEquals(1, asked.get());
    }

    /** Centrifugo's answer, after which an SDK asks for a new token. This version of the SDK ends the subscription. */
    @Test
    void anExpiredTokenIsError109() {
        String user = newUser();
        String channel = channelIn("closed");
        String expired = token(Map.of("sub", user, "channel", channel, "exp", inSeconds(-10)));
        refused(subscription(as(user), channel, options -> options.setToken(expired)), 109);
    }

    @Test
    void aTokenWithAWrongSignatureIsRefused() {
        String user = newUser();
        String channel = channelIn("closed");
        String bad = signed(Map.of("sub", user, "channel", channel), "another secret");
        refused(subscription(as(user), channel, options -> options.setToken(bad)), 103);
    }

    @Test
    void aTokenForAnotherChannelIsTerminal() {
        String user = newUser();
        var session = as(user);
        String other = token(Map.of("sub", user, "channel", channelIn("closed")));
        subscription(session, channelIn("closed"), options -> options.setToken(other));
        disconnected(session, 3500);
    }

    @Test
    void aTokenForAnotherUserIsTerminal() {
        var session = as(newUser());
        String channel = channelIn("closed");
        subscription(session, channel, options -> options.setToken(token(Map.of("sub", newUser(), "channel", channel))));
        disconnected(session, 3500);
    }

    @Test
    void aTokenIsRefreshedAndTheSubscriptionOutlivesIt() {
        String user = newUser();
        String channel = channelIn("closed");
        var third = new CompletableFuture<Void>();
        var asked = new AtomicInteger();
        var sub = subscribed(as(user), channel, options -> {
            options.setToken(token(Map.of("sub", user, "channel", channel, "exp", inSeconds(2))));
            options.setTokenGetter(subscriptionTokens(() -> {
                if (asked.incrementAndGet() == 3) {
                    third.complete(null);
                }
                return token(Map.of("sub", user, "channel", channel, "exp", inSeconds(2)));
            }));
        });
        await(third);
        assertEquals(1, sub.events.count(SubscribingEvent.class));
    }

    @Test
    void aTokenThatIsNotRefreshedEndsTheSubscriptionWith2501() {
        String user = newUser();
        String channel = channelIn("closed");
        var session = as(user);
        var sub = subscribed(session, channel, options -> {
            options.setToken(token(Map.of("sub", user, "channel", channel, "exp", inSeconds(2))));
            options.setTokenGetter(subscriptionTokens(() -> {
                throw new Exception("no token today");
            }));
        });
        sub.events.next(SubscribingEvent.class);
        assertEquals(2501, sub.events.next(SubscribingEvent.class).getCode());
        assertEquals(ClientState.CONNECTED, session.client.getState());
    }
}
