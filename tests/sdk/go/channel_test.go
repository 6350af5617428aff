package sdk

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/centrifugal/centrifuge-go"
)

func TestPublish(t *testing.T) {
	inBothEncodings(t, "by a subscriber, who gets it with its own info", func(b *bench) {
		user := newUser()
		s := b.connected(centrifuge.Config{Token: token(b.T, object{"sub": user, "info": object{"name": "Ann"}})})
		sub := b.subscribed(s, channelIn("open"))
		_, err := sub.Publish(withDeadline(b), []byte(`{"text":"hello ✓"}`))
		check(b.T, err)
		publication := next[centrifuge.PublicationEvent](b.T, sub.events)
		equalJSON(b.T, "data", publication.Data, object{"text": "hello ✓"})
		equal(b.T, "user", publication.Info.User, user)
		equal(b.T, "client", publication.Info.Client, s.id)
		equalJSON(b.T, "info", publication.Info.ConnInfo, object{"name": "Ann"})
		equal(b.T, "offset", publication.Offset, 0)
	})

	inBothEncodings(t, "by one client reaches another in order", func(b *bench) {
		channel := channelIn("history")
		publisher := b.connected(centrifuge.Config{})
		reader := b.subscribed(b.connected(centrifuge.Config{}), channel)
		for n := 1; n <= 100; n++ {
			_, err := publisher.Publish(withDeadline(b), channel, encoded(b, object{"n": n}))
			check(b.T, err)
		}
		recordHistory(b.T, channel, 100)
		b.numbers(reader, 1, 100)
	})

	inBothEncodings(t, "by the HTTP API with tags and offset", func(b *bench) {
		channel := channelIn("history")
		sub := b.subscribed(b.connected(centrifuge.Config{}), channel)
		data := object{"nested": object{"list": []any{1, 2.5, "three", nil, true}}}
		var told position
		answer := api(b.T, "publish", object{"channel": channel, "data": data, "tags": object{"kind": "test"}})
		check(b.T, json.Unmarshal(answer, &told))
		publication := next[centrifuge.PublicationEvent](b.T, sub.events)
		equalJSON(b.T, "data", publication.Data, data)
		equal(b.T, "tag", publication.Tags["kind"], "test")
		equal(b.T, "offset", publication.Offset, told.Offset)
		if publication.Info != nil {
			b.Fatalf("info %v of nobody", publication.Info)
		}
	})

	inBothEncodings(t, "as differences, which arrive whole", func(b *bench) {
		channel := channelIn("delta")
		options := centrifuge.SubscriptionConfig{Delta: centrifuge.DeltaTypeFossil}
		sub := b.subscribed(b.connected(centrifuge.Config{}), channel, options)
		same := strings.Repeat("the same in every publication. ", 20)
		for n := 1; n <= 4; n++ {
			api(b.T, "publish", object{"channel": channel, "data": object{"n": n, "same": same}, "delta": true})
			publication := next[centrifuge.PublicationEvent](b.T, sub.events)
			equalJSON(b.T, "data", publication.Data, object{"n": n, "same": same})
		}
	})

	inBothEncodings(t, "into channels that have numbers for names", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		channels := []string{channelIn("compact"), channelIn("compact"), channelIn("compact")}
		subs := make([]*subscription, len(channels))
		for i, channel := range channels {
			subs[i] = b.subscribed(s, channel)
		}
		for _, channel := range channels {
			api(b.T, "publish", object{"channel": channel, "data": channel})
		}
		for i, channel := range channels {
			equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, subs[i].events).Data, channel)
		}
	})

	inBothEncodings(t, "once for one idempotency key", func(b *bench) {
		channel := channelIn("history")
		sub := b.subscribed(b.connected(centrifuge.Config{}), channel)
		for _, key := range []string{"one", "one", "two"} {
			api(b.T, "publish", object{"channel": channel, "data": key, "idempotency_key": key})
		}
		equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, sub.events).Data, "one")
		equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, sub.events).Data, "two")
	})

	inBothEncodings(t, "of almost 64 KiB by a client, of 200 KB by the HTTP API", func(b *bench) {
		channel := channelIn("open")
		sub := b.subscribed(b.connected(centrifuge.Config{}), channel)
		text := strings.Repeat("x", 65_000)
		_, err := sub.Publish(withDeadline(b), encoded(b, text))
		check(b.T, err)
		equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, sub.events).Data, text)
		text = strings.Repeat("é", 100_000)
		api(b.T, "publish", object{"channel": channel, "data": text})
		equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, sub.events).Data, text)
	})

	inBothEncodings(t, "refused", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		for channel, code := range map[string]uint32{
			channelIn("nowhere"): 102, channelIn("closed"): 103, channelIn("members"): 103,
		} {
			_, err := s.Publish(withDeadline(b), channel, []byte("{}"))
			b.fails(channel, err, code)
		}
		sub := b.subscribed(s, channelIn("members"))
		_, err := sub.Publish(withDeadline(b), []byte("{}"))
		check(b.T, err)
	})

	t.Run("every byte over Protobuf", func(t *testing.T) {
		t.Parallel()
		b := &bench{T: t, protobuf: true}
		everyByte := make([]byte, 1024)
		for i := range everyByte {
			everyByte[i] = byte(i)
		}
		channel := channelIn("history")
		sub := b.subscribed(b.connected(centrifuge.Config{}), channel)
		_, err := sub.Publish(withDeadline(b), everyByte)
		check(t, err)
		api(t, "publish", object{"channel": channel, "b64data": base64.StdEncoding.EncodeToString(everyByte)})
		for range 2 {
			if !bytes.Equal(next[centrifuge.PublicationEvent](t, sub.events).Data, everyByte) {
				t.Fatal("bytes changed on their way")
			}
		}
	})
}

func TestHistory(t *testing.T) {
	limit, since, reverse := centrifuge.WithHistoryLimit, centrifuge.WithHistorySince, centrifuge.WithHistoryReverse

	inBothEncodings(t, "in every shape", func(b *bench) {
		channel := channelIn("history")
		top := publish(b.T, channel, 1, 5)
		s := b.connected(centrifuge.Config{})
		at := func(number int) centrifuge.HistoryOption {
			return since(&centrifuge.StreamPosition{Offset: offsetOf(channel, number), Epoch: top.Epoch})
		}
		for _, shape := range []struct {
			options []centrifuge.HistoryOption
			numbers []int
		}{
			{nil, nil},
			{[]centrifuge.HistoryOption{limit(0)}, nil},
			{[]centrifuge.HistoryOption{limit(-1)}, []int{1, 2, 3, 4, 5}},
			{[]centrifuge.HistoryOption{limit(2)}, []int{1, 2}},
			{[]centrifuge.HistoryOption{limit(2), reverse(true)}, []int{5, 4}},
			{[]centrifuge.HistoryOption{limit(-1), at(2)}, []int{3, 4, 5}},
			{[]centrifuge.HistoryOption{limit(2), at(2)}, []int{3, 4}},
			{[]centrifuge.HistoryOption{limit(-1), at(5)}, nil},
			{[]centrifuge.HistoryOption{limit(-1), at(4), reverse(true)}, []int{3, 2, 1}},
		} {
			result, err := s.History(withDeadline(b), channel, shape.options...)
			check(b.T, err)
			var numbers []int
			for _, publication := range result.Publications {
				number := numberOf(channel, publication.Offset)
				numbers = append(numbers, number)
				equalJSON(b.T, "data", publication.Data, object{"n": number})
			}
			if !slices.Equal(numbers, shape.numbers) {
				b.Fatalf("got %v, want %v", numbers, shape.numbers)
			}
			equal(b.T, "position", position{result.Offset, result.Epoch}, top)
		}
		_, err := s.History(withDeadline(b), channel, limit(1), since(&centrifuge.StreamPosition{Offset: 1, Epoch: "another"}))
		b.fails("another epoch", err, 112)
	})

	inBothEncodings(t, "refused", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		for channel, code := range map[string]uint32{
			channelIn("nowhere"): 102, channelIn("closed"): 103, channelIn("members"): 103, channelIn("open"): 108,
		} {
			_, err := s.History(withDeadline(b), channel, limit(1))
			b.fails(channel, err, code)
		}
	})
}

func TestPresence(t *testing.T) {
	inBothEncodings(t, "names clients, counts users, tells joins and leaves", func(b *bench) {
		channel := channelIn("presence")
		user := newUser()
		as := func() *session {
			return b.connected(centrifuge.Config{Token: token(b.T, object{"sub": user, "info": object{"n": 1}})})
		}
		watcher := b.connected(centrifuge.Config{})
		watching := b.subscribed(watcher, channel)
		equal(b.T, "own join", next[centrifuge.JoinEvent](b.T, watching.events).Client, watcher.id)
		first, second := as(), as()
		coming := b.subscribed(first, channel)
		join := next[centrifuge.JoinEvent](b.T, watching.events)
		equal(b.T, "join", join.Client, first.id)
		equal(b.T, "join", join.User, user)
		equalJSON(b.T, "join info", join.ConnInfo, object{"n": 1})
		b.subscribed(second, channel)
		next[centrifuge.JoinEvent](b.T, watching.events)

		present, err := watcher.Presence(withDeadline(b), channel)
		check(b.T, err)
		for _, s := range []*session{watcher, first, second} {
			if _, there := present.Clients[s.id]; !there {
				b.Fatalf("%s is missing in %v", s.id, present.Clients)
			}
		}
		stats, err := watching.PresenceStats(withDeadline(b))
		check(b.T, err)
		equal(b.T, "clients", stats.NumClients, 3)
		equal(b.T, "users", stats.NumUsers, 2)

		check(b.T, coming.Unsubscribe())
		equal(b.T, "leave", next[centrifuge.LeaveEvent](b.T, watching.events).Client, first.id)
		check(b.T, second.Disconnect())
		equal(b.T, "leave", next[centrifuge.LeaveEvent](b.T, watching.events).Client, second.id)
	})

	inBothEncodings(t, "refused", func(b *bench) {
		s := b.connected(centrifuge.Config{})
		for channel, code := range map[string]uint32{
			channelIn("nowhere"): 102, channelIn("closed"): 103, channelIn("members"): 103, channelIn("open"): 108,
		} {
			_, err := s.Presence(withDeadline(b), channel)
			b.fails(channel, err, code)
			_, err = s.PresenceStats(withDeadline(b), channel)
			b.fails(channel, err, code)
		}
	})
}
