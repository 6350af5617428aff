package sdk

import (
	"testing"

	"github.com/centrifugal/centrifuge-go"
)

func result(fields object) object { return object{"result": fields} }

func failure(code int) object { return object{"error": object{"code": code, "message": "no"}} }

func goodbye(code int) object { return object{"disconnect": object{"code": code, "reason": "go"}} }

// visitor creates a client without connecting it; the backend gives this answer to its connect.
func (b *bench) visitor(user string, all ...object) *session {
	b.Helper()
	answers(b.T, "connect", user, all...)
	return b.client(centrifuge.Config{Data: encoded(b, object{"about": user}), Name: "tests", Version: "7"}, hooksURL(b.T))
}

// entered creates a client that the backend accepts as a unique user, with these additional fields in the result.
func (b *bench) entered(fields object) (*session, string) {
	b.Helper()
	user := newUser()
	all := object{"user": user}
	for name, value := range fields {
		all[name] = value
	}
	s := b.visitor(user, result(all))
	check(b.T, s.Connect())
	s.id = next[centrifuge.ConnectedEvent](b.T, s.events).ClientID
	return s, user
}

func TestConnectHook(t *testing.T) {
	inBothEncodings(t, "is asked who comes, and says it", func(b *bench) {
		user, channel := newUser(), channelIn("open")
		s := b.visitor(user, result(object{
			"user": user, "info": object{"name": "Ann"}, "data": object{"welcome": 1}, "channels": []string{channel},
		}))
		check(b.T, s.Connect())
		connected := next[centrifuge.ConnectedEvent](b.T, s.events)
		equalJSON(b.T, "data", connected.Data, object{"welcome": 1})
		seen := map[string]bool{}
		for range 2 {
			seen[next[centrifuge.ServerSubscribedEvent](b.T, s.events).Channel] = true
		}
		equal(b.T, "given", seen[channel], true)
		equal(b.T, "personal", seen["personal:#"+user], true)
		client := object{"client": connected.ClientID, "user": user, "conn_info": object{"name": "Ann"}}
		present := hooksAPI(b.T, "presence", object{"channel": channel})
		equalJSON(b.T, "presence", present, object{"presence": object{connected.ClientID: client}})
		hooksAPI(b.T, "publish", object{"channel": channel, "data": object{"n": 1}})
		equalJSON(b.T, "publication", next[centrifuge.ServerPublicationEvent](b.T, s.events).Data, object{"n": 1})
		protocol := map[bool]string{false: "json", true: "protobuf"}[b.protobuf]
		equalJSON(b.T, "question", encoded(b, asked(b.T, "connect", user, 1)[0]), object{
			"client": connected.ClientID, "transport": "websocket", "protocol": protocol, "encoding": "json",
			"data": object{"about": user}, "name": "tests", "version": "7",
		})
	})

	for what, wanted := range map[string]struct {
		answer object
		code   uint32
	}{"an error": {failure(1000), 1000}, "a disconnect": {goodbye(4501), 4501}, "nothing": {object{}, 3501}} {
		inBothEncodings(t, "answers with "+what+", which is the end", func(b *bench) {
			s := b.visitor(newUser(), wanted.answer)
			// The answer comes as an event as well, and before this returns.
			_ = s.Connect()
			b.disconnected(s, wanted.code)
		})
	}

	inBothEncodings(t, "fails, and lets the client in when it tries again", func(b *bench) {
		user := newUser()
		s := b.visitor(user, object{"status": 500}, goodbye(4001), result(object{"user": user}))
		_ = s.Connect()
		next[centrifuge.ConnectedEvent](b.T, s.events)
		equal(b.T, "disconnected events", count[centrifuge.DisconnectedEvent](s.events), 0)
		equal(b.T, "questions", len(asked(b.T, "connect", user, 3)), 3)
	})

	inBothEncodings(t, "lets a user in twice, and the older connection ends", func(b *bench) {
		s, user := b.entered(nil)
		second := b.connected(centrifuge.Config{Data: encoded(b, object{"about": user})}, hooksURL(b.T))
		b.disconnected(s, 3504)
		hooksAPI(b.T, "publish", object{"channel": "personal:#" + user, "data": object{"for": user}})
		equalJSON(b.T, "data", next[centrifuge.ServerPublicationEvent](b.T, second.events).Data, object{"for": user})
	})
}

func TestRefreshHook(t *testing.T) {
	inBothEncodings(t, "keeps a connection, and changes its info", func(b *bench) {
		user := newUser()
		answers(b.T, "refresh", user,
			result(object{"expire_at": inSeconds(4), "info": object{"seat": 2}}), result(object{"expire_at": inSeconds(600)}))
		s := b.visitor(user, result(object{"user": user, "expire_at": inSeconds(2), "info": object{"seat": 1}, "meta": object{"plan": "pro"}}))
		check(b.T, s.Connect())
		next[centrifuge.ConnectedEvent](b.T, s.events)
		question := asked(b.T, "refresh", user, 2)[0]
		equal(b.T, "user", question["user"], any(user))
		equalJSON(b.T, "meta", encoded(b, question["meta"]), object{"plan": "pro"})
		sub := b.subscribed(s, channelIn("open"))
		_, err := sub.Publish(withDeadline(b), []byte("{}"))
		check(b.T, err)
		equalJSON(b.T, "info", next[centrifuge.PublicationEvent](b.T, sub.events).Info.ConnInfo, object{"seat": 2})
		equal(b.T, "connecting events", count[centrifuge.ConnectingEvent](s.events), 1)
	})

	inBothEncodings(t, "says that it has expired, and the client comes back", func(b *bench) {
		user := newUser()
		answers(b.T, "refresh", user, result(object{"expired": true}))
		s := b.visitor(user, result(object{"user": user, "expire_at": inSeconds(2)}), result(object{"user": user}))
		check(b.T, s.Connect())
		next[centrifuge.ConnectedEvent](b.T, s.events)
		next[centrifuge.ConnectingEvent](b.T, s.events)
		equal(b.T, "code", next[centrifuge.ConnectingEvent](b.T, s.events).Code, 3005)
		next[centrifuge.ConnectedEvent](b.T, s.events)
	})
}

func TestSubscribeHook(t *testing.T) {
	inBothEncodings(t, "is asked, and says what comes with the subscription", func(b *bench) {
		channel := channelIn("asked")
		answers(b.T, "subscribe", channel, result(object{"info": object{"role": "admin"}, "data": object{"welcome": 2}}))
		s, user := b.entered(object{"meta": object{"plan": "pro"}})
		sub := b.subscribed(s, channel, centrifuge.SubscriptionConfig{Data: []byte(`{"code":1234}`)})
		equalJSON(b.T, "data", sub.event.Data, object{"welcome": 2})
		client := object{"client": s.id, "user": user, "chan_info": object{"role": "admin"}}
		equalJSON(b.T, "presence", hooksAPI(b.T, "presence", object{"channel": channel}), object{"presence": object{s.id: client}})
		question := asked(b.T, "subscribe", channel, 1)[0]
		equalJSON(b.T, "question", encoded(b, object{"data": question["data"], "meta": question["meta"], "user": question["user"]}),
			object{"data": object{"code": 1234}, "meta": object{"plan": "pro"}, "user": user})
	})

	inBothEncodings(t, "refuses for now, then for good", func(b *bench) {
		channel := channelIn("asked")
		notYet := object{"error": object{"code": 1001, "message": "not yet", "temporary": true}}
		answers(b.T, "subscribe", channel, notYet, object{"status": 503}, failure(1001))
		s, _ := b.entered(nil)
		b.refused(b.subscription(s, channel), 1001)
		equal(b.T, "questions", len(asked(b.T, "subscribe", channel, 3)), 3)
		equal(b.T, "state", s.State(), centrifuge.StateConnected)
	})

	inBothEncodings(t, "disconnects", func(b *bench) {
		channel := channelIn("asked")
		answers(b.T, "subscribe", channel, goodbye(4503))
		s, _ := b.entered(nil)
		b.subscription(s, channel)
		b.disconnected(s, 4503)
	})
}

func TestSubRefreshHook(t *testing.T) {
	inBothEncodings(t, "keeps a subscription until it says that it has expired", func(b *bench) {
		channel := channelIn("asked")
		answers(b.T, "subscribe", channel, result(object{"expire_at": inSeconds(2)}), result(object{}))
		answers(b.T, "sub_refresh", channel, result(object{"expire_at": inSeconds(4)}), result(object{"expired": true}))
		s, user := b.entered(nil)
		sub := b.subscribed(s, channel)
		next[centrifuge.SubscribingEvent](b.T, sub.events)
		equal(b.T, "code", next[centrifuge.SubscribingEvent](b.T, sub.events).Code, 2501)
		questions := asked(b.T, "sub_refresh", channel, 2)
		equal(b.T, "questions", len(questions), 2)
		equal(b.T, "user", questions[0]["user"], any(user))
		next[centrifuge.SubscribedEvent](b.T, sub.events)
	})
}

func TestPublishHook(t *testing.T) {
	inBothEncodings(t, "says what is published, refuses and disconnects", func(b *bench) {
		channel := channelIn("asked")
		answers(b.T, "subscribe", channel, result(object{}))
		answers(b.T, "publish", channel,
			result(object{"data": object{"text": "b***"}, "tags": object{"judged": "yes"}}),
			result(object{"idempotency_key": "same"}), result(object{"idempotency_key": "same"}),
			result(object{"skip_history": true}), failure(1002), object{"status": 500}, goodbye(4504))
		s, user := b.entered(nil)
		sub := b.subscribed(s, channel)
		say := func(n int) error {
			_, err := sub.Publish(withDeadline(b), encoded(b, object{"n": n}))
			return err
		}
		for n := 1; n <= 4; n++ {
			check(b.T, say(n))
		}
		publication := next[centrifuge.PublicationEvent](b.T, sub.events)
		equalJSON(b.T, "data", publication.Data, object{"text": "b***"})
		equal(b.T, "tag", publication.Tags["judged"], "yes")
		equal(b.T, "user", publication.Info.User, user)
		for _, n := range []int{2, 4} {
			equalJSON(b.T, "data", next[centrifuge.PublicationEvent](b.T, sub.events).Data, object{"n": n})
		}
		history, err := sub.History(withDeadline(b), centrifuge.WithHistoryLimit(-1))
		check(b.T, err)
		equal(b.T, "kept in history", len(history.Publications), 2)
		b.fails("refused", say(5), 1002)
		b.fails("failed", say(6), 100)
		_ = say(7)
		b.disconnected(s, 4504)
		question := asked(b.T, "publish", channel, 7)[0]
		equalJSON(b.T, "question", encoded(b, object{"data": question["data"], "user": question["user"]}), object{"data": object{"n": 1}, "user": user})
	})
}

func TestRPCHook(t *testing.T) {
	inBothEncodings(t, "answers, refuses and disconnects", func(b *bench) {
		method := newUser()
		answers(b.T, "rpc", method, result(object{"data": object{"pong": []int{1, 2}}}), failure(1003), object{"status": 500}, goodbye(4505))
		s, user := b.entered(nil)
		say := func() (centrifuge.RPCResult, error) { return s.RPC(withDeadline(b), method, []byte(`{"ping":1}`)) }
		answer, err := say()
		check(b.T, err)
		equalJSON(b.T, "data", answer.Data, object{"pong": []int{1, 2}})
		_, err = say()
		b.fails("refused", err, 1003)
		_, err = say()
		b.fails("failed", err, 100)
		_, _ = say()
		b.disconnected(s, 4505)
		question := asked(b.T, "rpc", method, 4)[0]
		equalJSON(b.T, "question", encoded(b, object{"data": question["data"], "user": question["user"]}), object{"data": object{"ping": 1}, "user": user})
	})
}
