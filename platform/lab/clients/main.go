// Clients connects many clients with the official SDK for Go, and reports every second what they have seen:
//
//	clients ADDRESS URL SESSIONS CHANNELS
//
// ADDRESS is where the host of the URL is. Each client subscribes to one of the channels drain:0, drain:1 and so on. The token's key comes from $TOKEN_KEY. Ends with its input.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

// session is what one client has seen. Publications are numbered, and each goes to the channel after the one before, so the next number
// is known. The first one is published after all clients are connected.
type session struct {
	channel   int
	connected bool
	next      int
}

// report is a line of output. Counts are those since the start.
type report struct {
	Connected   int            `json:"connected"`
	Seen        int            `json:"seen"`
	Lost        int            `json:"lost"`
	Doubled     int            `json:"doubled"`
	Unrecovered int            `json:"unrecovered"`
	Closed      int            `json:"closed"`
	ClosedMost  int            `json:"closedMostInASecond"`
	AwayMost    int64          `json:"awayMostMs"`
	AwayMedian  int64          `json:"awayMedianMs"`
	Wrong       map[string]int `json:"wrong"` // how many clients have lost or doubled a publication, by its number; a part of them
	Next        int            `json:"next"`  // the lowest number that a client waits for
	Gone        map[string]int `json:"gone"`  // clients and subscriptions that do not come back by themselves, by the reason
}

type crowd struct {
	guard    sync.Mutex
	report   report
	sessions []*session
	closed   []time.Time
	awayMs   []int64
}

func token(key, user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"sub":"`+user+`"}`))
	sum := hmac.New(sha256.New, []byte(key))
	sum.Write([]byte(text))
	return text + "." + encode(sum.Sum(nil))
}

func (crowd *crowd) join(address, url, key string, number, channels int) error {
	config := centrifuge.Config{
		Token: token(key, "user"+strconv.Itoa(number)), MaxReconnectDelay: 5 * time.Second,
		NetDialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, network, address)
		},
	}
	client := centrifuge.NewJsonClient(url, config)
	if number%2 == 1 {
		client = centrifuge.NewProtobufClient(url, config)
	}
	session := &session{channel: number % channels, next: number % channels}
	crowd.guard.Lock()
	crowd.sessions = append(crowd.sessions, session)
	crowd.guard.Unlock()
	var since time.Time
	client.OnConnecting(func(centrifuge.ConnectingEvent) {
		crowd.guard.Lock()
		defer crowd.guard.Unlock()
		if session.connected {
			session.connected, since = false, time.Now()
			crowd.report.Connected--
			crowd.closed = append(crowd.closed, since)
		}
	})
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) {
		crowd.isGone(fmt.Sprintf("disconnected: %d %s", event.Code, event.Reason))
	})
	subscription, err := client.NewSubscription(fmt.Sprintf("drain:%d", session.channel))
	if err != nil {
		return err
	}
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		crowd.guard.Lock()
		defer crowd.guard.Unlock()
		if session.connected {
			if event.WasRecovering && !event.Recovered {
				crowd.report.Unrecovered++
			}
			return
		}
		session.connected = true
		crowd.report.Connected++
		if since.IsZero() {
			return
		}
		crowd.awayMs = append(crowd.awayMs, time.Since(since).Milliseconds())
		if !event.WasRecovering || !event.Recovered {
			crowd.report.Unrecovered++
		}
	})
	subscription.OnUnsubscribed(func(event centrifuge.UnsubscribedEvent) {
		crowd.isGone(fmt.Sprintf("unsubscribed: %d %s", event.Code, event.Reason))
	})
	subscription.OnPublication(func(event centrifuge.PublicationEvent) {
		var data struct{ Number int }
		if err := json.Unmarshal(event.Data, &data); err != nil {
			log.Fatalf("clients: %s: %v", event.Data, err)
		}
		crowd.see(session, data.Number, channels)
	})
	if err := subscription.Subscribe(); err != nil {
		return err
	}
	return client.Connect()
}

// wrongMax bounds the list.
const wrongMax = 40

func (crowd *crowd) isWrong(what string, number int) {
	key := fmt.Sprintf("%s %d", what, number)
	if _, isThere := crowd.report.Wrong[key]; isThere || len(crowd.report.Wrong) < wrongMax {
		crowd.report.Wrong[key]++
	}
}

func (crowd *crowd) isGone(reason string) {
	crowd.guard.Lock()
	defer crowd.guard.Unlock()
	crowd.report.Gone[reason]++
}

func (crowd *crowd) see(session *session, number, channels int) {
	crowd.guard.Lock()
	defer crowd.guard.Unlock()
	crowd.report.Seen++
	if number < session.next {
		crowd.report.Doubled++
		crowd.isWrong("doubled", number)
		return
	}
	for missing := session.next; missing < number; missing += channels {
		crowd.report.Lost++
		crowd.isWrong("lost", missing)
	}
	session.next = number + channels
}

func (crowd *crowd) print() error {
	crowd.guard.Lock()
	defer crowd.guard.Unlock()
	found := crowd.report
	found.Closed = len(crowd.closed)
	for from, to := 0, 0; from < len(crowd.closed); from++ {
		for to < len(crowd.closed) && crowd.closed[to].Sub(crowd.closed[from]) < time.Second {
			to++
		}
		found.ClosedMost = max(found.ClosedMost, to-from)
	}
	if len(crowd.awayMs) > 0 {
		sorted := slices.Sorted(slices.Values(crowd.awayMs))
		found.AwayMost, found.AwayMedian = sorted[len(sorted)-1], sorted[len(sorted)/2]
	}
	for place, session := range crowd.sessions {
		if place == 0 || session.next < found.Next {
			found.Next = session.next
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// joinPause spreads the first connections.
const joinPause = 3 * time.Millisecond

func main() {
	if err := run(os.Args[1:]); err != nil {
		log.Fatalf("clients: %v", err)
	}
}

func run(arguments []string) error {
	if len(arguments) != 4 {
		return fmt.Errorf("the arguments are ADDRESS URL SESSIONS CHANNELS")
	}
	sessions, err := strconv.Atoi(arguments[2])
	if err != nil {
		return err
	}
	channels, err := strconv.Atoi(arguments[3])
	if err != nil {
		return err
	}
	crowd := &crowd{report: report{Gone: map[string]int{}, Wrong: map[string]int{}}}
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		close(ended)
	}()
	failed := make(chan error, 1)
	go func() {
		for number := range sessions {
			if err := crowd.join(arguments[0], arguments[1], os.Getenv("TOKEN_KEY"), number, channels); err != nil {
				failed <- err
				return
			}
			time.Sleep(joinPause)
		}
	}()
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case err := <-failed:
			return err
		case <-ended:
			return crowd.print()
		case <-second.C:
			if err := crowd.print(); err != nil {
				return err
			}
		}
	}
}
