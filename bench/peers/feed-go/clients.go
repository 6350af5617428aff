package main

import (
	"slices"
	"sync"
	"sync/atomic"
)

// clients knows who subscribes to what, and visits those that a publication may be for.
type clients interface {
	subscribe(c *client, channel string)
	// remove forgets a client that has ended.
	remove(c *client)
	// visit calls for each subscriber of a channel, and returns the number of clients that it looked at.
	visit(channel string, call func(*client)) int
	// size is the number of entries, which is 0 when all clients have ended.
	size() int
}

// mapOfAll is a map of all clients behind a lock. A publication looks at each client, and asks it for its channels.
type mapOfAll struct {
	mutex sync.RWMutex
	all   map[*client]struct{}
}

func newMapOfAll() *mapOfAll { return &mapOfAll{all: make(map[*client]struct{})} }

func (m *mapOfAll) subscribe(c *client, channel string) {
	c.addChannel(channel)
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.all[c] = struct{}{}
}

func (m *mapOfAll) remove(c *client) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.all, c)
}

func (m *mapOfAll) visit(channel string, call func(*client)) int {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	for c := range m.all {
		if c.hasChannel(channel) {
			call(c)
		}
	}
	return len(m.all)
}

func (m *mapOfAll) size() int {
	m.mutex.RLock()
	defer m.mutex.RUnlock()
	return len(m.all)
}

// list is a list of clients that is replaced by a changed copy, so that walking it takes no lock.
type list struct {
	changing sync.Mutex
	clients  atomic.Pointer[[]*client]
}

func (l *list) now() []*client {
	if clients := l.clients.Load(); clients != nil {
		return *clients
	}
	return nil
}

func (l *list) add(c *client) {
	l.changing.Lock()
	defer l.changing.Unlock()
	if before := l.now(); !slices.Contains(before, c) {
		after := append(slices.Clone(before), c)
		l.clients.Store(&after)
	}
}

// remove returns how many clients are left.
func (l *list) remove(c *client) int {
	l.changing.Lock()
	defer l.changing.Unlock()
	after := slices.DeleteFunc(slices.Clone(l.now()), func(other *client) bool { return other == c })
	l.clients.Store(&after)
	return len(after)
}

// listOfAll is a list of all clients. A publication looks at each client, and asks it for its channels.
type listOfAll struct{ all list }

func newListOfAll() *listOfAll { return &listOfAll{} }

func (l *listOfAll) subscribe(c *client, channel string) {
	c.addChannel(channel)
	l.all.add(c)
}

func (l *listOfAll) remove(c *client) { l.all.remove(c) }

func (l *listOfAll) visit(channel string, call func(*client)) int {
	all := l.all.now()
	for _, c := range all {
		if c.hasChannel(channel) {
			call(c)
		}
	}
	return len(all)
}

func (l *listOfAll) size() int { return len(l.all.now()) }

// index has a list of subscribers for each channel. A publication looks at no other client.
type index struct {
	mutex    sync.RWMutex
	channels map[string]*list
}

func newIndex() *index { return &index{channels: make(map[string]*list)} }

func (x *index) subscribe(c *client, channel string) {
	c.addChannel(channel)
	x.mutex.Lock()
	defer x.mutex.Unlock()
	if x.channels[channel] == nil {
		x.channels[channel] = &list{}
	}
	x.channels[channel].add(c)
}

func (x *index) remove(c *client) {
	x.mutex.Lock()
	defer x.mutex.Unlock()
	for _, channel := range c.allChannels() {
		if subscribers := x.channels[channel]; subscribers != nil && subscribers.remove(c) == 0 {
			delete(x.channels, channel)
		}
	}
}

func (x *index) visit(channel string, call func(*client)) int {
	x.mutex.RLock()
	subscribers := x.channels[channel]
	x.mutex.RUnlock()
	if subscribers == nil {
		return 0
	}
	all := subscribers.now()
	for _, c := range all {
		call(c)
	}
	return len(all)
}

func (x *index) size() int {
	x.mutex.RLock()
	defer x.mutex.RUnlock()
	return len(x.channels)
}
