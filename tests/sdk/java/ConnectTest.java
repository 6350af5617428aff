package sdk;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertInstanceOf;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static sdk.Server.assertJson;
import static sdk.Server.channelIn;
import static sdk.Server.inSeconds;
import static sdk.Server.json;
import static sdk.Server.newUser;
import static sdk.Server.signed;
import static sdk.Server.token;

import io.github.centrifugal.centrifuge.ClientState;
import io.github.centrifugal.centrifuge.ConnectedEvent;
import io.github.centrifugal.centrifuge.ConnectingEvent;
import io.github.centrifugal.centrifuge.ErrorEvent;
import io.github.centrifugal.centrifuge.PresenceResult;
import io.github.centrifugal.centrifuge.PublishResult;
import io.github.centrifugal.centrifuge.RPCResult;
import io.github.centrifugal.centrifuge.ReplyError;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicInteger;
import org.junit.jupiter.api.Test;

class ConnectTest extends Scenario {
    @Test
    void withoutAToken() {
        assertFalse(connected().id.isEmpty());
    }

    @Test
    void withATokenUserAndInfoAreTheTokens() {
        String user = newUser();
        var session = connected(options -> options.setToken(token(Map.of("sub", user, "info", Map.of("name", "Ann")))));
        String channel = channelIn("presence");
        subscribed(session, channel);
        var clients = Scenario.<PresenceResult>result(callback -> session.client.presence(channel, callback)).getClients();
        assertEquals(1, clients.size());
        assertEquals(user, clients.get(session.id).getUser());
        assertJson(Map.of("name", "Ann"), clients.get(session.id).getConnInfo());
    }

    private void badToken(String bad) {
        var session = client(options -> options.setToken(bad));
        session.client.connect();
        assertEquals("invalid token", disconnected(session, 3500));
    }

    @Test
    void aTokenWithAWrongSignatureIsTerminal() {
        badToken(signed(Map.of("sub", "x"), "another secret"));
    }

    @Test
    void aTokenThatIsNoJwtIsTerminal() {
        badToken("not-a-token");
    }

    @Test
    void aSubscriptionTokenIsTerminal() {
        badToken(token(Map.of("sub", "x", "channel", "open:x")));
    }

    @Test
    void anExpiredTokenMakesTheSdkAskForANewOne() {
        var asked = new AtomicInteger();
        var session = connected(options -> {
            options.setToken(token(Map.of("sub", "x", "exp", inSeconds(-10))));
            options.setTokenGetter(connectionTokens(() -> {
                asked.incrementAndGet();
                return token(Map.of("sub", "x", "exp", inSeconds(600)));
            }));
        });
        assertEquals(1, asked.get());
        var reply = assertInstanceOf(ReplyError.class, session.events.next(ErrorEvent.class).getError());
        assertEquals(109, reply.getCode());
    }

    @Test
    void aSessionOutlivesItsTokenByRefreshingIt() {
        var third = new CompletableFuture<Void>();
        var asked = new AtomicInteger();
        var session = connected(options -> {
            options.setToken(token(Map.of("sub", "x", "exp", inSeconds(2))));
            options.setTokenGetter(connectionTokens(() -> {
                if (asked.incrementAndGet() == 3) {
                    third.complete(null);
                }
                return token(Map.of("sub", "x", "exp", inSeconds(2)));
            }));
        });
        // The third refresh comes after the first token's end plus expired_close_delay.
        await(third);
        assertEquals(1, session.events.count(ConnectingEvent.class));
    }

    @Test
    void aSessionThatIsNotRefreshedIsClosedWith3005AndMayComeBack() {
        var session = connected(options -> {
            options.setToken(token(Map.of("sub", "x", "exp", inSeconds(2))));
            options.setTokenGetter(connectionTokens(() -> {
                throw new Exception("no token today");
            }));
        });
        session.events.next(ConnectingEvent.class);
        assertEquals(3005, session.events.next(ConnectingEvent.class).getCode());
    }

    @Test
    void refreshingWithABadTokenIsTerminal() {
        var session = connected(options -> {
            options.setToken(token(Map.of("sub", "x", "exp", inSeconds(2))));
            options.setTokenGetter(connectionTokens(() -> signed(Map.of("sub", "x"), "another secret")));
        });
        disconnected(session, 3500);
    }

    @Test
    void pingsAreAnsweredSoTheConnectionStays() throws Exception {
        var proxy = proxy();
        var session = client(proxy.url(), options -> {}).connect();
        proxy.waitPings(2); // when the second comes, the first one's pong is already due
        assertEquals(1, session.events.count(ConnectingEvent.class));
    }

    @Test
    void aServerThatFallsSilentIsLeftAndFoundAgain() {
        var proxy = proxy();
        var session = client(proxy.url(), options -> options.setMaxServerPingDelay(200)).connect();
        session.events.next(ConnectingEvent.class);
        proxy.hold();
        assertEquals(2, session.events.next(ConnectingEvent.class).getCode()); // the SDK's own code for no ping
        proxy.release();
        session.events.next(ConnectedEvent.class);
    }

    @Test
    void aClientCanDisconnectAndConnectAgain() {
        var session = connected();
        String first = session.id;
        session.client.disconnect();
        disconnected(session, 0);
        assertNotEquals(first, session.connect().id);
    }

    @Test
    void rpcWithoutAHandlerIsError108() {
        var session = connected();
        Scenario.<RPCResult>fails(108, callback -> session.client.rpc("any", json(Map.of()), callback));
        assertEquals(ClientState.CONNECTED, session.client.getState());
    }

    @Test
    void sendWithoutAHandlerIsTerminal() {
        var session = connected();
        session.client.send(json(Map.of("hello", 1)), error -> {});
        assertEquals("not available", disconnected(session, 3508));
    }

    @Test
    void aMessageOverTheLimitEndsTheConnection() {
        var session = connected();
        session.events.next(ConnectingEvent.class);
        byte[] large = json("x".repeat(66_000));
        assertThrows(AssertionError.class, () -> Scenario.<PublishResult>result(
                callback -> session.client.publish(channelIn("open"), large, callback)));
        // The SDK's own code for close code 1009; this SDK reconnects after it.
        assertEquals(3, session.events.next(ConnectingEvent.class).getCode());
    }
}
