package sdk

import (
	"encoding/json"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/centrifugal/centrifuge-go"
)

func TestSubscribe(t *testing.T) {
	inBothEncodings(t, "to a plain channel, and leave it", func(b *bench) {
		sub := b.subscribed(b.connected(centrifuge.Config{}), channelIn("open"))
		equal(b.T, "positioned", sub.event.Positioned, false)
		equal(b.T, "recoverable", sub.event.Recoverable, false)
		equal(b.T, "was recovering", sub.event.WasRecovering, false)
		check(b.T, sub.Unsubscribe())
		b.refused(sub, 0)
		check(b.T, sub.Subscribe())
		next[centrifuge.SubscribedEvent](b.T, sub.events)
	})

	for what, wanted := range map[string]struct {
		channel string
		code    uint32
	}{
		"an unknown namespace":             {channelIn("nowhere"), 102},
		"a namespace that allows nothing":  {channelIn("closed"), 103},
		"no namespace when anonymous":      {newUser(), 103},
		"a private channel without token":  {"$" + channelIn("open"), 103},
		"another user's channel":           {channelIn("users") + "#somebody", 103},
		"a name that is too long":          {"open:" + strings.Repeat("x", 251), 107},
		"a name with letters beyond ASCII": {channelIn("open") + "é", 107},
	} {
		inBothEncodings(t, "to "+what+" is refused", func(b *bench) {
			s := b.connected(centrifuge.Config{})
			b.refused(b.subscription(s, wanted.channel), wanted.code)
			equal(b.T, "state", s.State(), centrifuge.StateConnected)
		})
	}

	inBothEncodings(t, "to 128 channels, the 129th is refused", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		var subs []*subscription
		for range 128 {
			subs = append(subs, b.subscription(s, channelIn("open")))
		}
		for _, sub := range subs {
			next[centrifuge.SubscribedEvent](b.T, sub.events)
		}
		b.refused(b.subscription(s, channelIn("open")), 106)
	})

	inBothEncodings(t, "on the server side by the token, 105 for a second time", func(b *bench) {
		channel := channelIn("history")
		s := b.client(centrifuge.Config{Token: token(b.T, object{"sub": newUser(), "channels": []string{channel}})})
		check(b.T, s.Connect())
		subscribed := next[centrifuge.ServerSubscribedEvent](b.T, s.events)
		equal(b.T, "channel", subscribed.Channel, channel)
		equal(b.T, "recoverable", subscribed.Recoverable, true)
		publish(b.T, channel, 1, 1)
		publication := next[centrifuge.ServerPublicationEvent](b.T, s.events)
		equal(b.T, "channel", publication.Channel, channel)
		equal(b.T, "number", numberOf(channel, publication.Offset), 1)
		b.refused(b.subscription(s, channel), 105)
	})

	inBothEncodings(t, "positioned, recoverable and join/leave only when asked for", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		flags := func(config centrifuge.SubscriptionConfig) [2]bool {
			event := b.subscribed(s, channelIn("optional"), config).event
			return [2]bool{event.Positioned, event.Recoverable}
		}
		equal(b.T, "plain", flags(centrifuge.SubscriptionConfig{}), [2]bool{false, false})
		equal(b.T, "positioned", flags(centrifuge.SubscriptionConfig{Positioned: true}), [2]bool{true, false})
		equal(b.T, "recoverable", flags(centrifuge.SubscriptionConfig{Recoverable: true}), [2]bool{true, true})
		joins := b.subscribed(s, channelIn("optional"), centrifuge.SubscriptionConfig{JoinLeave: true})
		equal(b.T, "join", next[centrifuge.JoinEvent](b.T, joins.events).Client, s.id)
	})
}

func TestSubscriptionToken(t *testing.T) {
	inBothEncodings(t, "opens a closed channel and carries info and data", func(b *bench) {
		s, user := b.asUser()
		channel := "$" + channelIn("closed")
		claims := object{"sub": user, "channel": channel, "info": object{"role": "admin"}, "data": object{"welcome": true}}
		sub := b.subscribed(s, channel, centrifuge.SubscriptionConfig{Token: token(b.T, claims)})
		equalJSON(b.T, "data", sub.event.Data, object{"welcome": true})
		var answer struct {
			Presence map[string]struct {
				User     string          `json:"user"`
				ChanInfo json.RawMessage `json:"chan_info"`
			} `json:"presence"`
		}
		check(b.T, json.Unmarshal(api(b.T, "presence", object{"channel": channel}), &answer))
		equal(b.T, "user", answer.Presence[s.id].User, user)
		equalJSON(b.T, "info", answer.Presence[s.id].ChanInfo, object{"role": "admin"})
	})

	inBothEncodings(t, "expired makes the SDK ask for a new one", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("closed")
		var asked atomic.Int32
		sub := b.subscription(s, channel, centrifuge.SubscriptionConfig{
			Token: token(b.T, object{"sub": user, "channel": channel, "exp": inSeconds(-10)}),
			GetToken: func(event centrifuge.SubscriptionTokenEvent) (string, error) {
				asked.Add(1)
				return token(b.T, object{"sub": user, "channel": event.Channel, "exp": inSeconds(600)}), nil
			},
		})
		next[centrifuge.SubscribedEvent](b.T, sub.events)
		equal(b.T, "asked", asked.Load(), 1)
		b.fails("error event", next[centrifuge.SubscriptionErrorEvent](b.T, sub.events).Error, 109)
	})

	inBothEncodings(t, "with a wrong signature is refused", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("closed")
		bad := signed(b.T, object{"sub": user, "channel": channel}, "another secret")
		b.refused(b.subscription(s, channel, centrifuge.SubscriptionConfig{Token: bad}), 103)
	})

	for what, claims := range map[string]func(user, channel string) object{
		"another channel": func(user, _ string) object { return object{"sub": user, "channel": channelIn("closed")} },
		"another user":    func(_, channel string) object { return object{"sub": newUser(), "channel": channel} },
	} {
		inBothEncodings(t, "of "+what+" ends the connection", func(b *bench) {
			s, user := b.asUser()
			channel := channelIn("closed")
			b.subscription(s, channel, centrifuge.SubscriptionConfig{Token: token(b.T, claims(user, channel))})
			b.disconnected(s, 3500)
		})
	}

	inBothEncodings(t, "is refreshed, and the subscription outlives it", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("closed")
		third := make(chan struct{})
		var asked atomic.Int32
		short := func() string { return token(b.T, object{"sub": user, "channel": channel, "exp": inSeconds(2)}) }
		sub := b.subscribed(s, channel, centrifuge.SubscriptionConfig{
			Token: short(),
			GetToken: func(centrifuge.SubscriptionTokenEvent) (string, error) {
				if asked.Add(1) == 3 {
					close(third)
				}
				return short(), nil
			},
		})
		await(b, "third refresh", third)
		equal(b.T, "subscribing events", count[centrifuge.SubscribingEvent](sub.events), 1)
	})

	inBothEncodings(t, "not refreshed ends the subscription with 2501, it may come back", func(b *bench) {
		s, user := b.asUser()
		channel := channelIn("closed")
		sub := b.subscribed(s, channel, centrifuge.SubscriptionConfig{
			Token: token(b.T, object{"sub": user, "channel": channel, "exp": inSeconds(2)}),
			GetToken: func(centrifuge.SubscriptionTokenEvent) (string, error) {
				return "", errors.New("no token today")
			},
		})
		next[centrifuge.SubscribingEvent](b.T, sub.events)
		equal(b.T, "code", next[centrifuge.SubscribingEvent](b.T, sub.events).Code, 2501)
		equal(b.T, "state", s.State(), centrifuge.StateConnected)
	})
}
