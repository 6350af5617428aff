package sdk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

const deadline = 20 * time.Second

// events queues the events of an SDK object until a test reads them.
type events struct {
	mu      sync.Mutex
	unread  []any
	all     []any
	arrived chan struct{}
}

func newEvents() *events { return &events{arrived: make(chan struct{}, 1)} }

func (e *events) add(event any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.unread = append(e.unread, event)
	e.all = append(e.all, event)
	select {
	case e.arrived <- struct{}{}:
	default:
	}
}

// next is the next unread event of type T; events of other types stay unread.
func next[T any](t *testing.T, e *events) T {
	t.Helper()
	timeout := time.NewTimer(deadline)
	defer timeout.Stop()
	for {
		e.mu.Lock()
		for i, event := range e.unread {
			if found, is := event.(T); is {
				e.unread = append(e.unread[:i:i], e.unread[i+1:]...)
				e.mu.Unlock()
				return found
			}
		}
		e.mu.Unlock()
		select {
		case <-e.arrived:
		case <-timeout.C:
			e.mu.Lock()
			defer e.mu.Unlock()
			var none T
			seen := make([]string, 0, len(e.all))
			for _, event := range e.all {
				seen = append(seen, fmt.Sprintf("%T %+v", event, event))
			}
			t.Fatalf("no %T within %v; seen: %s", none, deadline, strings.Join(seen, "; "))
		}
	}
}

// count is how many events of type T were seen, read or not.
func count[T any](e *events) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, event := range e.all {
		if _, is := event.(T); is {
			n++
		}
	}
	return n
}

// bench creates the clients of one test in one encoding.
type bench struct {
	*testing.T
	protobuf bool
}

// inBothEncodings runs a scenario once per encoding, in parallel with other scenarios.
func inBothEncodings(t *testing.T, name string, scenario func(*bench)) {
	for _, encoding := range []string{"json", "protobuf"} {
		t.Run(name+"/"+encoding, func(t *testing.T) {
			t.Parallel()
			scenario(&bench{T: t, protobuf: encoding == "protobuf"})
		})
	}
}

type session struct {
	*centrifuge.Client
	events *events
	id     string
}

// client creates a client without connecting it.
func (b *bench) client(config centrifuge.Config, url ...string) *session {
	config.MinReconnectDelay = 20 * time.Millisecond
	config.MaxReconnectDelay = 200 * time.Millisecond
	address := wsURL(b.T)
	if len(url) > 0 {
		address = url[0]
	}
	var client *centrifuge.Client
	if b.protobuf {
		client = centrifuge.NewProtobufClient(address, config)
	} else {
		client = centrifuge.NewJsonClient(address, config)
	}
	b.Cleanup(client.Close)
	e := newEvents()
	client.OnConnecting(func(event centrifuge.ConnectingEvent) { e.add(event) })
	client.OnConnected(func(event centrifuge.ConnectedEvent) { e.add(event) })
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) { e.add(event) })
	client.OnError(func(event centrifuge.ErrorEvent) { e.add(event) })
	client.OnSubscribed(func(event centrifuge.ServerSubscribedEvent) { e.add(event) })
	client.OnUnsubscribed(func(event centrifuge.ServerUnsubscribedEvent) { e.add(event) })
	client.OnPublication(func(event centrifuge.ServerPublicationEvent) { e.add(event) })
	return &session{Client: client, events: e}
}

// connected creates a client and waits until it is connected.
func (b *bench) connected(config centrifuge.Config, url ...string) *session {
	b.Helper()
	s := b.client(config, url...)
	check(b.T, s.Connect())
	s.id = next[centrifuge.ConnectedEvent](b.T, s.events).ClientID
	return s
}

// asUser creates a client that is connected as a unique user.
func (b *bench) asUser() (*session, string) {
	b.Helper()
	user := newUser()
	return b.connected(centrifuge.Config{Token: token(b.T, object{"sub": user})}), user
}

type subscription struct {
	*centrifuge.Subscription
	events *events
	event  centrifuge.SubscribedEvent
}

// subscription creates a subscription and calls Subscribe.
func (b *bench) subscription(s *session, channel string, config ...centrifuge.SubscriptionConfig) *subscription {
	b.Helper()
	options := centrifuge.SubscriptionConfig{}
	if len(config) > 0 {
		options = config[0]
	}
	options.MinResubscribeDelay = 20 * time.Millisecond
	options.MaxResubscribeDelay = 200 * time.Millisecond
	sub, err := s.NewSubscription(channel, options)
	check(b.T, err)
	e := newEvents()
	sub.OnSubscribing(func(event centrifuge.SubscribingEvent) { e.add(event) })
	sub.OnSubscribed(func(event centrifuge.SubscribedEvent) { e.add(event) })
	sub.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) { e.add(event) })
	sub.OnError(func(event centrifuge.SubscriptionErrorEvent) { e.add(event) })
	sub.OnPublication(func(event centrifuge.PublicationEvent) { e.add(event) })
	sub.OnJoin(func(event centrifuge.JoinEvent) { e.add(event) })
	sub.OnLeave(func(event centrifuge.LeaveEvent) { e.add(event) })
	check(b.T, sub.Subscribe())
	return &subscription{Subscription: sub, events: e}
}

// subscribed creates a subscription and waits until it is subscribed.
func (b *bench) subscribed(s *session, channel string, config ...centrifuge.SubscriptionConfig) *subscription {
	b.Helper()
	sub := b.subscription(s, channel, config...)
	sub.event = next[centrifuge.SubscribedEvent](b.T, sub.events)
	return sub
}

// refused expects the subscription to end with this code.
func (b *bench) refused(sub *subscription, code uint32) {
	b.Helper()
	equal(b.T, "unsubscribed code", next[centrifuge.UnsubscribedEvent](b.T, sub.events).Code, code)
	equal(b.T, "state", sub.State(), centrifuge.SubStateUnsubscribed)
}

// disconnected expects the connection to end with this code.
func (b *bench) disconnected(s *session, code uint32) centrifuge.DisconnectedEvent {
	b.Helper()
	event := next[centrifuge.DisconnectedEvent](b.T, s.events)
	equal(b.T, "disconnected code", event.Code, code)
	equal(b.T, "state", s.State(), centrifuge.StateDisconnected)
	return event
}

// numbers reads publications {"n": N} and expects from..=to, with the offsets of the publications with these numbers.
func (b *bench) numbers(sub *subscription, from, to int) {
	b.Helper()
	for n := from; n <= to; n++ {
		publication := next[centrifuge.PublicationEvent](b.T, sub.events)
		equalJSON(b.T, "data", publication.Data, object{"n": n})
		equal(b.T, "number", numberOf(sub.Channel, publication.Offset), n)
	}
}

func withDeadline(b *bench) context.Context {
	limited, cancel := context.WithTimeout(context.Background(), deadline)
	b.Cleanup(cancel)
	return limited
}

// fails expects an error reply with this code.
func (b *bench) fails(what string, err error, code uint32) {
	b.Helper()
	var reply *centrifuge.Error
	if !errors.As(err, &reply) {
		b.Fatalf("%s: got %v, want error %d", what, err, code)
	}
	equal(b.T, what, reply.Code, code)
}

func encoded(b *bench, value any) []byte {
	bytes, err := json.Marshal(value)
	check(b.T, err)
	return bytes
}
