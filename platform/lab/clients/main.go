// Clients connects many clients with the official SDK for Go, and prints a report of their events every second:
//
//	clients ADDRESS URL SESSIONS CHANNELS
//
// ADDRESS is where the host of the URL is. With wss: in the URL, $SSL_CERT_FILE has the authority of its certificate. Each client subscribes to one of the channels drain:0, drain:1 and so on. The token's key comes from $TOKEN_KEY. Ends with its input.
package main

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
	"github.com/centrifugal/protocol"
)

// session records the events of one client. Publications are numbered in their order in the channel, so the next number is known. The first one is
// published after all clients are connected.
type session struct {
	channel   int
	connected bool
	// next is the number after the highest one that the SDK has delivered; isMissing are the lower ones that it has not delivered.
	next      int
	isMissing map[int]bool
	journal   *journal
	hasDumped bool
}

// report is a line of output. Its counts begin at the start of the program.
type report struct {
	Connected   int            `json:"connected"`
	Seen        int            `json:"seen"`
	Missing     int            `json:"missing"` // not handed out although later ones were
	Late        int            `json:"late"`    // handed out after later ones
	Doubled     int            `json:"doubled"`
	Unrecovered int            `json:"unrecovered"`
	Closed      int            `json:"closed"`
	ClosedMost  int            `json:"closedMostInASecond"`
	AwayMost    int64          `json:"awayMostMs"`
	AwayMedian  int64          `json:"awayMedianMs"`
	Next        int            `json:"next"`      // the lowest number that a client waits for
	Gone        map[string]int `json:"gone"`      // clients that the SDK does not connect again by itself, by the reason
	WrongSent   int            `json:"wrongSent"` // what the server has sent and should not have, or has left out, read beside the SDK
}

type crowd struct {
	guard    sync.Mutex
	report   report
	sessions []*session
	closed   []time.Time
	awayMs   []int64
	numbers  []*numbers // by channel
}

func token(key, user string) string {
	encode := base64.RawURLEncoding.EncodeToString
	text := encode([]byte(`{"alg":"HS256","typ":"JWT"}`)) + "." + encode([]byte(`{"sub":"`+user+`"}`))
	sum := hmac.New(sha256.New, []byte(key))
	sum.Write([]byte(text))
	return text + "." + encode(sum.Sum(nil))
}

// newClient returns a client whose connections are also parsed outside the SDK.
func newClient(address, url, key string, number int, journal *journal, numbers *numbers) *centrifuge.Client {
	format, construct := protocol.TypeJSON, centrifuge.NewJsonClient
	if number%2 == 1 {
		format, construct = protocol.TypeProtobuf, centrifuge.NewProtobufClient
	}
	// The SDK uses an unencrypted connection, so that its bytes can be parsed; TLS is added below it.
	host, isEncrypted := strings.CutPrefix(url, "wss://")
	if isEncrypted {
		url = "ws://" + host
		host, _, _ = strings.Cut(host, "/")
	}
	return construct(url, centrifuge.Config{
		Token: token(key, "user"+strconv.Itoa(number)), MaxReconnectDelay: 5 * time.Second,
		NetDialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			connection, err := new(net.Dialer).DialContext(ctx, network, address)
			if err != nil {
				return nil, err
			}
			if isEncrypted {
				encrypted := tls.Client(connection, &tls.Config{ServerName: host})
				if err := encrypted.HandshakeContext(ctx); err != nil {
					return nil, errors.Join(err, connection.Close())
				}
				connection = encrypted
			}
			return newWire(connection, journal, format, numbers), nil
		},
	})
}

func (crowd *crowd) join(address, url, key string, number, channels int) error {
	journal := &journal{name: fmt.Sprintf("session %d", number)}
	client := newClient(address, url, key, number, journal, crowd.numbers[number%channels])
	session := &session{channel: number % channels, next: number % channels, isMissing: map[int]bool{}, journal: journal}
	crowd.guard.Lock()
	crowd.sessions = append(crowd.sessions, session)
	crowd.guard.Unlock()
	var since time.Time
	client.OnError(func(event centrifuge.ErrorEvent) { journal.add("the SDK: %v", event.Error) })
	client.OnConnecting(func(event centrifuge.ConnectingEvent) {
		journal.add("the SDK connects: %d %s", event.Code, event.Reason)
		crowd.guard.Lock()
		defer crowd.guard.Unlock()
		if session.connected {
			session.connected, since = false, time.Now()
			crowd.report.Connected--
			crowd.closed = append(crowd.closed, since)
		}
	})
	client.OnDisconnected(func(event centrifuge.DisconnectedEvent) {
		journal.add("the SDK gives up: %d %s", event.Code, event.Reason)
		crowd.isGone(fmt.Sprintf("%d %s", event.Code, event.Reason))
		// Reconnect, as an app would. The subscription keeps its position.
		go func() { _ = client.Connect() }()
	})
	subscription, err := client.NewSubscription(fmt.Sprintf("drain:%d", session.channel))
	if err != nil {
		return err
	}
	subscription.OnSubscribing(func(event centrifuge.SubscribingEvent) {
		journal.add("the SDK subscribes: %d %s", event.Code, event.Reason)
	})
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		journal.add("the SDK has subscribed: recovered %v, %+v", event.Recovered, event.StreamPosition)
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
		journal.add("the SDK hands out %d, number %d", event.Offset, data.Number)
		crowd.see(session, data.Number, channels)
	})
	if err := subscription.Subscribe(); err != nil {
		return err
	}
	return client.Connect()
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
	if session.isMissing[number] {
		delete(session.isMissing, number)
		crowd.report.Missing--
		crowd.report.Late++
		return
	}
	if number < session.next {
		crowd.report.Doubled++
		session.dumpSoon()
		return
	}
	for missing := session.next; missing < number; missing += channels {
		session.isMissing[missing] = true
		crowd.report.Missing++
		session.dumpSoon()
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
		found.WrongSent += session.journal.wrongCount()
		if place == 0 || session.next < found.Next {
			found.Next = session.next
		}
	}
	return json.NewEncoder(os.Stdout).Encode(found)
}

// dumpPause is the pause before a journal is written, so that it includes the events after a wrong delivery.
const dumpPause = 3 * time.Second

func (session *session) dumpSoon() {
	if !session.hasDumped {
		session.hasDumped = true
		time.AfterFunc(dumpPause, session.journal.dump)
	}
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
	crowd := &crowd{report: report{Gone: map[string]int{}}}
	for channel := range channels {
		crowd.numbers = append(crowd.numbers, &numbers{first: channel, step: channels})
	}
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
