package sdk

import (
	"fmt"
	"slices"
	"testing"

	"github.com/centrifugal/centrifuge-go"
)

func TestDisconnectByAPI(t *testing.T) {
	inBothEncodings(t, "without a code is terminal", func(b *bench) {
		s, user := b.asUser()
		api(b.T, "disconnect", object{"user": user})
		equal(b.T, "reason", b.disconnected(s, 3503).Reason, "force disconnect")
	})

	for _, code := range []uint32{3500, 3999, 4500, 4999} {
		inBothEncodings(t, fmt.Sprintf("with %d is terminal", code), func(b *bench) {
			s, user := b.asUser()
			api(b.T, "disconnect", object{"user": user, "disconnect": object{"code": code, "reason": "because"}})
			equal(b.T, "reason", b.disconnected(s, code).Reason, "because")
		})
	}

	for _, code := range []uint32{3001, 3499, 4000, 4499} {
		inBothEncodings(t, fmt.Sprintf("with %d the client comes back", code), func(b *bench) {
			s, user := b.asUser()
			next[centrifuge.ConnectingEvent](b.T, s.events)
			api(b.T, "disconnect", object{"user": user, "disconnect": object{"code": code, "reason": "because"}})
			event := next[centrifuge.ConnectingEvent](b.T, s.events)
			equal(b.T, "code", event.Code, code)
			equal(b.T, "reason", event.Reason, "because")
			next[centrifuge.ConnectedEvent](b.T, s.events)
			equal(b.T, "disconnected events", count[centrifuge.DisconnectedEvent](s.events), 0)
		})
	}

	// Centrifugo drops the connection for this code: the client sees neither a close frame nor a disconnect push.
	inBothEncodings(t, "with 3000 the client comes back as from a failure of the network", func(b *bench) {
		s, user := b.asUser()
		next[centrifuge.ConnectingEvent](b.T, s.events)
		api(b.T, "disconnect", object{"user": user, "disconnect": object{"code": 3000, "reason": "because"}})
		equal(b.T, "the SDK's own code", next[centrifuge.ConnectingEvent](b.T, s.events).Code, 1)
		next[centrifuge.ConnectedEvent](b.T, s.events)
		equal(b.T, "disconnected events", count[centrifuge.DisconnectedEvent](s.events), 0)
	})

	inBothEncodings(t, "of one client leaves the user's others", func(b *bench) {
		first, user := b.asUser()
		second := b.connected(centrifuge.Config{Token: token(b.T, object{"sub": user})})
		api(b.T, "disconnect", object{"user": user, "client": first.id})
		b.disconnected(first, 3503)
		_, err := second.RPC(withDeadline(b), "any", []byte("{}"))
		b.fails("still answered", err, 108)
	})
}

func TestUnsubscribeByAPI(t *testing.T) {
	inBothEncodings(t, "ends the subscription", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("open")
		sub := b.subscribed(s, channel)
		api(b.T, "unsubscribe", object{"user": user, "channel": channel})
		b.refused(sub, 2000)
		check(b.T, sub.Subscribe())
		next[centrifuge.SubscribedEvent](b.T, sub.events)
	})

	inBothEncodings(t, "ends a subscription that the API began", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("history")
		api(b.T, "subscribe", object{"user": user, "channel": channel})
		equal(b.T, "channel", next[centrifuge.ServerSubscribedEvent](b.T, s.events).Channel, channel)
		publish(b.T, channel, 1, 1)
		equal(b.T, "number", numberOf(channel, next[centrifuge.ServerPublicationEvent](b.T, s.events).Offset), 1)
		api(b.T, "unsubscribe", object{"user": user, "channel": channel})
		equal(b.T, "channel", next[centrifuge.ServerUnsubscribedEvent](b.T, s.events).Channel, channel)
	})
}

func TestCrowd(t *testing.T) {
	inBothEncodings(t, "100 subscriptions get a broadcast", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		var channels []string
		var subs []*subscription
		for range 100 {
			channel := channelIn("history")
			channels = append(channels, channel)
			subs = append(subs, b.subscription(s, channel))
		}
		for _, sub := range subs {
			next[centrifuge.SubscribedEvent](b.T, sub.events)
		}
		api(b.T, "broadcast", object{"channels": channels, "data": object{"n": 1}})
		for i, sub := range subs {
			recordHistory(b.T, channels[i], 1)
			b.numbers(sub, 1, 1)
		}
	})

	inBothEncodings(t, "50 clients see one order", func(b *bench) {
		channel := channelIn("history")
		subs := make([]*subscription, 50)
		for i := range subs {
			subs[i] = b.subscribed(b.connected(centrifuge.Config{}), channel)
		}
		failed := make(chan error, len(subs))
		for n, sub := range subs {
			go func() {
				_, err := sub.Publish(withDeadline(b), encoded(b, n))
				failed <- err
			}()
		}
		for range subs {
			check(b.T, <-failed)
		}
		recordHistory(b.T, channel, len(subs))
		var order []string
		for i, sub := range subs {
			var seen []string
			for index := range subs {
				publication := next[centrifuge.PublicationEvent](b.T, sub.events)
				equal(b.T, "number", numberOf(channel, publication.Offset), index+1)
				seen = append(seen, string(publication.Data))
			}
			if i == 0 {
				order = seen
			}
			if !slices.Equal(seen, order) {
				b.Fatalf("client %d saw %v, the first saw %v", i, seen, order)
			}
		}
		slices.Sort(order)
		equal(b.T, "different publications", len(slices.Compact(order)), len(subs))
	})
}
