package sdk

import (
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

func TestConnect(t *testing.T) {
	inBothEncodings(t, "without a token", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		if s.id == "" {
			b.Fatal("no client id")
		}
	})

	inBothEncodings(t, "with a token, user and info are the token's", func(b *bench) {
		user := newUser()
		s := b.connected(centrifuge.Config{Token: token(b.T, object{"sub": user, "info": object{"name": "Ann"}})})
		channel := channelIn("presence")
		b.subscribed(s, channel)
		present, err := s.Presence(withDeadline(b), channel)
		check(b.T, err)
		equal(b.T, "clients", len(present.Clients), 1)
		equal(b.T, "user", present.Clients[s.id].User, user)
		equalJSON(b.T, "info", present.Clients[s.id].ConnInfo, object{"name": "Ann"})
	})

	for what, bad := range map[string]func(*testing.T) string{
		"a wrong signature": func(t *testing.T) string { return signed(t, object{"sub": "x"}, "another secret") },
		"no JWT":            func(*testing.T) string { return "not-a-token" },
		"a subscription token": func(t *testing.T) string {
			return token(t, object{"sub": "x", "channel": "open:x"})
		},
	} {
		inBothEncodings(t, "token with "+what+" is terminal", func(b *bench) {
			s := b.client(centrifuge.Config{Token: bad(b.T)})
			check(b.T, s.Connect())
			equal(b.T, "reason", b.disconnected(s, 3500).Reason, "invalid token")
		})
	}

	inBothEncodings(t, "an expired token makes the SDK ask for a new one", func(b *bench) {
		var asked atomic.Int32
		fresh := token(b.T, object{"sub": "x", "exp": inSeconds(600)})
		s := b.client(centrifuge.Config{
			Token: token(b.T, object{"sub": "x", "exp": inSeconds(-10)}),
			GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
				asked.Add(1)
				return fresh, nil
			},
		})
		check(b.T, s.Connect())
		next[centrifuge.ConnectedEvent](b.T, s.events)
		equal(b.T, "asked", asked.Load(), 1)
		b.fails("error event", next[centrifuge.ErrorEvent](b.T, s.events).Error, 109)
	})

	inBothEncodings(t, "a session outlives its token by refreshing it", func(b *bench) {
		third := make(chan struct{})
		var asked atomic.Int32
		s := b.connected(centrifuge.Config{
			Token: token(b.T, object{"sub": "x", "exp": inSeconds(2)}),
			GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
				if asked.Add(1) == 3 {
					close(third)
				}
				return token(b.T, object{"sub": "x", "exp": inSeconds(2)}), nil
			},
		})
		// The third refresh comes after the first token's end plus expired_close_delay.
		await(b, "third refresh", third)
		equal(b.T, "connecting events", count[centrifuge.ConnectingEvent](s.events), 1)
	})

	inBothEncodings(t, "a session that is not refreshed is closed with 3005 and may come back", func(b *bench) {
		s := b.connected(centrifuge.Config{
			Token: token(b.T, object{"sub": "x", "exp": inSeconds(2)}),
			GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
				return "", errors.New("no token today")
			},
		})
		next[centrifuge.ConnectingEvent](b.T, s.events)
		equal(b.T, "code", next[centrifuge.ConnectingEvent](b.T, s.events).Code, 3005)
	})

	inBothEncodings(t, "refreshing with a bad token is terminal", func(b *bench) {
		s := b.connected(centrifuge.Config{
			Token: token(b.T, object{"sub": "x", "exp": inSeconds(2)}),
			GetToken: func(centrifuge.ConnectionTokenEvent) (string, error) {
				return signed(b.T, object{"sub": "x"}, "another secret"), nil
			},
		})
		b.disconnected(s, 3500)
	})

	inBothEncodings(t, "pings are answered, so the connection stays", func(b *bench) {
		p := startProxy(b.T)
		s := b.connected(centrifuge.Config{}, p.url(b.T))
		p.waitPings(2) // when the second comes, the first one's pong is already due
		equal(b.T, "connecting events", count[centrifuge.ConnectingEvent](s.events), 1)
	})

	inBothEncodings(t, "a server that falls silent is left and found again", func(b *bench) {
		p := startProxy(b.T)
		s := b.connected(centrifuge.Config{MaxServerPingDelay: 200 * time.Millisecond}, p.url(b.T))
		next[centrifuge.ConnectingEvent](b.T, s.events)
		p.hold()
		equal(b.T, "the SDK's own code for no ping", next[centrifuge.ConnectingEvent](b.T, s.events).Code, 2)
		p.release()
		next[centrifuge.ConnectedEvent](b.T, s.events)
	})

	inBothEncodings(t, "a client can disconnect and connect again", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		check(b.T, s.Disconnect())
		b.disconnected(s, 0)
		check(b.T, s.Connect())
		if next[centrifuge.ConnectedEvent](b.T, s.events).ClientID == s.id {
			b.Fatal("the same client id twice")
		}
	})

	inBothEncodings(t, "rpc without a handler is error 108", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		_, err := s.RPC(withDeadline(b), "any", []byte("{}"))
		b.fails("rpc", err, 108)
		equal(b.T, "state", s.State(), centrifuge.StateConnected)
	})

	inBothEncodings(t, "send without a handler is terminal", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		check(b.T, s.Send(withDeadline(b), []byte(`{"hello":1}`)))
		equal(b.T, "reason", b.disconnected(s, 3508).Reason, "not available")
	})

	inBothEncodings(t, "a message over the limit ends the connection", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		next[centrifuge.ConnectingEvent](b.T, s.events)
		_, err := s.Publish(withDeadline(b), channelIn("open"), encoded(b, strings.Repeat("x", 66_000)))
		if err == nil {
			b.Fatal("66,000 bytes were accepted")
		}
		// The SDK's own code for close code 1009; this SDK reconnects after it.
		equal(b.T, "code", next[centrifuge.ConnectingEvent](b.T, s.events).Code, 3)
	})
}

func await(b *bench, what string, done <-chan struct{}) {
	b.Helper()
	select {
	case <-done:
	case <-time.After(deadline):
		b.Fatalf("no %s within %v", what, deadline)
	}
}
