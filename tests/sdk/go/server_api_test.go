package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/centrifugal/centrifuge-go"
	"github.com/centrifugal/gocent/v3"
)

// serverAPI is the official client of the server API, without a limit of time: the machine of the tests may be busy.
func serverAPI(t *testing.T) *gocent.Client {
	return gocent.New(gocent.Config{
		Addr:       required(t, "DUNLIN_API_URL"),
		Key:        required(t, "DUNLIN_API_KEY"),
		HTTPClient: &http.Client{Timeout: deadline},
	})
}

// refusedByAPI checks the code of an error of the server API.
func refusedByAPI(t *testing.T, err error, code int) {
	t.Helper()
	var refused gocent.Error
	var pointer *gocent.Error
	switch {
	case errors.As(err, &refused):
		equal(t, "code", refused.Code, code)
	case errors.As(err, &pointer):
		equal(t, "code", pointer.Code, code)
	default:
		t.Fatalf("%v is no error of the API", err)
	}
}

func TestServerAPIPublications(t *testing.T) {
	t.Parallel()
	ctx, client := context.Background(), serverAPI(t)
	first, second := channelIn("history"), channelIn("history")
	published, err := client.Publish(ctx, first, []byte(`{"n":1}`), gocent.WithTags(map[string]string{"kind": "test"}))
	check(t, err)
	again := gocent.WithIdempotencyKey("key")
	kept, err := client.Publish(ctx, first, []byte(`{"n":2}`), again)
	check(t, err)
	repeated, err := client.Publish(ctx, first, []byte(`{"n":2}`), again)
	check(t, err)
	equal(t, "the offset of the same key", repeated.Offset, kept.Offset)
	all, err := client.Broadcast(ctx, []string{first, second}, []byte(`{"n":3}`))
	check(t, err)
	equal(t, "responses", len(all.Responses), 2)

	history, err := client.History(ctx, first, gocent.WithLimit(gocent.NoLimit))
	check(t, err)
	equal(t, "publications", len(history.Publications), 3)
	equal(t, "epoch", history.Epoch, published.Epoch)
	equalJSON(t, "the first", history.Publications[0].Data, object{"n": 1})
	since := gocent.WithSince(&gocent.StreamPosition{Offset: kept.Offset, Epoch: published.Epoch})
	newer, err := client.History(ctx, first, gocent.WithLimit(10), since)
	check(t, err)
	equal(t, "newer publications", len(newer.Publications), 1)
	newest, err := client.History(ctx, first, gocent.WithLimit(1), gocent.WithReverse(true))
	check(t, err)
	equalJSON(t, "the newest", newest.Publications[0].Data, object{"n": 3})

	check(t, client.HistoryRemove(ctx, first))
	history, err = client.History(ctx, first, gocent.WithLimit(gocent.NoLimit))
	check(t, err)
	equal(t, "publications that are left", len(history.Publications), 0)
}

func TestServerAPISessions(t *testing.T) {
	inBothEncodings(t, "presence, subscribe, unsubscribe and disconnect by gocent", func(b *bench) {
		ctx, client := context.Background(), serverAPI(b.T)
		s, user := b.asUser()
		channel := channelIn("presence")
		check(b.T, client.Subscribe(ctx, channel, user, gocent.WithSubscribeInfo(json.RawMessage(`{"a":1}`))))
		next[centrifuge.ServerSubscribedEvent](b.T, s.events)
		presence, err := client.Presence(ctx, channel)
		check(b.T, err)
		equal(b.T, "user", presence.Presence[s.id].User, user)
		equalJSON(b.T, "info", presence.Presence[s.id].ChanInfo, object{"a": 1})
		stats, err := client.PresenceStats(ctx, channel)
		check(b.T, err)
		equal(b.T, "clients", stats.NumClients, 1)
		channels, err := client.Channels(ctx, gocent.WithPattern(channel))
		check(b.T, err)
		if _, isThere := channels.Channels[channel]; !isThere {
			b.Fatalf("channels: %v", channels.Channels)
		}
		check(b.T, client.Unsubscribe(ctx, channel, user))
		next[centrifuge.ServerUnsubscribedEvent](b.T, s.events)
		check(b.T, client.Disconnect(ctx, user))
		b.disconnected(s, 3503)
	})
}

func TestServerAPIPipe(t *testing.T) {
	t.Parallel()
	ctx, client := context.Background(), serverAPI(t)
	channel, pipe := channelIn("history"), client.Pipe()
	check(t, pipe.AddPublish(channel, []byte(`{"n":1}`)))
	check(t, pipe.AddPublish("absent:"+channel, []byte(`{"n":1}`)))
	check(t, pipe.AddHistory(channel, gocent.WithLimit(10)))
	replies, err := client.SendPipe(ctx, pipe)
	check(t, err)
	equal(t, "replies", len(replies), 3)
	if replies[0].Error != nil || replies[1].Error == nil || replies[2].Error != nil {
		t.Fatalf("replies: %+v", replies)
	}
	equal(t, "code", replies[1].Error.Code, 102)
	var history gocent.HistoryResult
	check(t, json.Unmarshal(replies[2].Result, &history))
	equal(t, "publications", len(history.Publications), 1)
}

func TestServerAPIErrors(t *testing.T) {
	t.Parallel()
	ctx, client := context.Background(), serverAPI(t)
	_, err := client.Publish(ctx, "absent:channel", []byte(`{}`))
	refusedByAPI(t, err, 102)
	_, err = client.History(ctx, channelIn("open"), gocent.WithLimit(1))
	refusedByAPI(t, err, 108)
	info, err := client.Info(ctx)
	check(t, err)
	if len(info.Nodes) == 0 || info.Nodes[0].Name == "" {
		t.Fatalf("nodes: %+v", info)
	}
	wrong := gocent.New(gocent.Config{Addr: required(t, "DUNLIN_API_URL"), Key: "another key"})
	_, err = wrong.Info(ctx)
	var status gocent.ErrStatusCode
	if !errors.As(err, &status) || status.Code != http.StatusUnauthorized {
		t.Fatalf("a wrong key: %v", err)
	}
}
