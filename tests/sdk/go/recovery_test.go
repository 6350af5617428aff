package sdk

import (
	"testing"

	"github.com/centrifugal/centrifuge-go"
)

// cutOff returns a subscription through a proxy, disconnected after the first `seen` publications.
func (b *bench) cutOff(namespace string, seen int, config ...centrifuge.SubscriptionConfig) (*subscription, *proxy, string) {
	b.Helper()
	channel := channelIn(namespace)
	p := startProxy(b.T)
	s := b.connected(centrifuge.Config{}, p.url(b.T))
	sub := b.subscribed(s, channel, config...)
	publish(b.T, channel, 1, seen)
	b.numbers(sub, 1, seen)
	next[centrifuge.SubscribingEvent](b.T, sub.events)
	p.cut()
	next[centrifuge.SubscribingEvent](b.T, sub.events)
	return sub, p, channel
}

// back expects the subscription to resubscribe with recovery, successful or not.
func (b *bench) back(sub *subscription, recovered bool) centrifuge.SubscribedEvent {
	b.Helper()
	event := next[centrifuge.SubscribedEvent](b.T, sub.events)
	equal(b.T, "was recovering", event.WasRecovering, true)
	equal(b.T, "recovered", event.Recovered, recovered)
	return event
}

func TestRecovery(t *testing.T) {
	inBothEncodings(t, "every publication missed comes once and in order", func(b *bench) {
		sub, p, channel := b.cutOff("history", 2)
		publish(b.T, channel, 3, 12)
		p.restore()
		b.back(sub, true)
		publish(b.T, channel, 13, 13)
		b.numbers(sub, 3, 13)
		equal(b.T, "publications", count[centrifuge.PublicationEvent](sub.events), 13)
	})

	inBothEncodings(t, "publications arriving meanwhile are neither lost nor doubled", func(b *bench) {
		sub, p, channel := b.cutOff("history", 1)
		p.restore()
		publish(b.T, channel, 2, 60)
		b.numbers(sub, 2, 60)
	})

	inBothEncodings(t, "nothing missed is recovered as well", func(b *bench) {
		sub, p, channel := b.cutOff("history", 3)
		p.restore()
		b.back(sub, true)
		publish(b.T, channel, 4, 4)
		b.numbers(sub, 4, 4)
	})

	inBothEncodings(t, "more missed than the history holds is not recovered", func(b *bench) {
		sub, p, channel := b.cutOff("small", 1)
		publish(b.T, channel, 2, 6)
		p.restore()
		equal(b.T, "top", numberOf(channel, b.back(sub, false).StreamPosition.Offset), 6)
		publish(b.T, channel, 7, 7)
		b.numbers(sub, 7, 7)
	})

	inBothEncodings(t, "as many missed as the history holds is recovered", func(b *bench) {
		sub, p, channel := b.cutOff("small", 1)
		publish(b.T, channel, 2, 3)
		p.restore()
		b.back(sub, true)
		b.numbers(sub, 2, 3)
	})

	inBothEncodings(t, "a history removed meanwhile is not recovered", func(b *bench) {
		sub, p, channel := b.cutOff("history", 1)
		publish(b.T, channel, 2, 3)
		api(b.T, "history_remove", object{"channel": channel})
		p.restore()
		b.back(sub, false)
	})

	inBothEncodings(t, "a subscription that asked for it recovers", func(b *bench) {
		sub, p, channel := b.cutOff("optional", 1, centrifuge.SubscriptionConfig{Recoverable: true})
		publish(b.T, channel, 2, 3)
		p.restore()
		b.back(sub, true)
		b.numbers(sub, 2, 3)
	})

	inBothEncodings(t, "from a cache only the newest comes", func(b *bench) {
		sub, p, channel := b.cutOff("cache", 1)
		publish(b.T, channel, 2, 5)
		p.restore()
		b.back(sub, true)
		b.numbers(sub, 5, 5)
		p.cut()
		next[centrifuge.SubscribingEvent](b.T, sub.events)
		p.restore()
		b.back(sub, true)
		publish(b.T, channel, 6, 6)
		b.numbers(sub, 6, 6)
		equal(b.T, "publications", count[centrifuge.PublicationEvent](sub.events), 3)
	})
}
