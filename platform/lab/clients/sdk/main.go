// Sdk shows, without Dunlin, in which order the SDK for Go delivers publications when connections end:
//
//	sdk CLIENTS SECONDS asked|newest
//
// The server of this program sends each client the publications after the position that the client asks for, in order, each once. It
// sends no pings, so the SDK ends each connection after a second by itself. With `asked`, the answer to a subscribe command has the
// position that was asked for, as Dunlin's; with `newest`, that of the last publication.
package main

import (
	"encoding/json"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/centrifugal/centrifuge-go"
	"github.com/gorilla/websocket"
)

const publicationsPerSecond = 50

// server has one channel, whose publications are numbered from 1.
type server struct {
	newest   atomic.Uint64
	hasAsked bool
}

type command struct {
	ID        uint32    `json:"id"`
	Connect   *struct{} `json:"connect"`
	Subscribe *struct {
		Recover bool   `json:"recover"`
		Offset  uint64 `json:"offset"`
	} `json:"subscribe"`
}

func (server *server) ServeHTTP(response http.ResponseWriter, request *http.Request) {
	connection, err := new(websocket.Upgrader).Upgrade(response, request, nil)
	if err != nil {
		return
	}
	defer connection.Close()
	var connect, subscribe command
	if connection.ReadJSON(&connect) != nil || connect.Connect == nil {
		return
	}
	if send(connection, fmt.Sprintf(`{"id":%d,"connect":{"client":"a","ping":1}}`, connect.ID)) != nil {
		return
	}
	if connection.ReadJSON(&subscribe) != nil || subscribe.Subscribe == nil {
		return
	}
	last := server.newest.Load()
	if send(connection, server.answer(subscribe, last)) != nil {
		return
	}
	for pace := time.NewTicker(time.Millisecond); ; <-pace.C {
		for ; last < server.newest.Load(); last++ {
			if send(connection, fmt.Sprintf(`{"push":{"channel":"a","pub":{"offset":%d,"data":{}}}}`, last+1)) != nil {
				pace.Stop()
				return
			}
		}
	}
}

func send(connection *websocket.Conn, text string) error {
	return connection.WriteMessage(websocket.TextMessage, []byte(text))
}

// answer returns the publications from the position of the client to the last one.
func (server *server) answer(asked command, last uint64) string {
	from, isRecovering := last, asked.Subscribe.Recover
	if isRecovering {
		from = asked.Subscribe.Offset
	}
	publications := []string{}
	for offset := from + 1; offset <= last; offset++ {
		publications = append(publications, fmt.Sprintf(`{"offset":%d,"data":{}}`, offset))
	}
	position := last
	if server.hasAsked {
		position = from
	}
	return fmt.Sprintf(`{"id":%d,"subscribe":{"recoverable":true,"positioned":true,"epoch":"e","offset":%d,"recovered":%v,"was_recovering":%v,"publications":[%s]}}`,
		asked.ID, position, isRecovering, isRecovering, strings.Join(publications, ","))
}

type counts struct{ handedOut, connections, skipped, again atomic.Int64 }

// join connects a client whose handler is called by one goroutine at a time.
func (counts *counts) join(url string) error {
	client := centrifuge.NewJsonClient(url, centrifuge.Config{
		MaxServerPingDelay: time.Millisecond, MinReconnectDelay: time.Millisecond, MaxReconnectDelay: 5 * time.Millisecond,
	})
	client.OnConnecting(func(centrifuge.ConnectingEvent) { counts.connections.Add(1) })
	subscription, err := client.NewSubscription("a")
	if err != nil {
		return err
	}
	last := uint64(0)
	subscription.OnPublication(func(event centrifuge.PublicationEvent) {
		counts.handedOut.Add(1)
		switch {
		case event.Offset <= last:
			counts.again.Add(1)
			return
		case last > 0:
			counts.skipped.Add(int64(event.Offset - last - 1))
		}
		last = event.Offset
	})
	if err := subscription.Subscribe(); err != nil {
		return err
	}
	// An error is from the first attempt only; the SDK keeps retrying.
	go func() { _ = client.Connect() }()
	return nil
}

func main() {
	if len(os.Args) != 4 || os.Args[3] != "asked" && os.Args[3] != "newest" {
		log.Fatal("sdk: the arguments are CLIENTS SECONDS asked|newest")
	}
	clients, err := strconv.Atoi(os.Args[1])
	if err != nil {
		log.Fatalf("sdk: %v", err)
	}
	seconds, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatalf("sdk: %v", err)
	}
	stream := &server{hasAsked: os.Args[3] == "asked"}
	listening := httptest.NewServer(stream)
	var seen counts
	for range clients {
		if err := seen.join("ws" + strings.TrimPrefix(listening.URL, "http")); err != nil {
			log.Fatalf("sdk: %v", err)
		}
	}
	end := time.After(time.Duration(seconds) * time.Second)
	pace := time.NewTicker(time.Second / publicationsPerSecond)
	for {
		select {
		case <-pace.C:
			stream.newest.Add(1)
		case <-end:
			report, _ := json.Marshal(map[string]int64{
				"handedOut": seen.handedOut.Load(), "connections": seen.connections.Load(),
				"skipped": seen.skipped.Load(), "lateOrAgain": seen.again.Load(),
			})
			fmt.Println(string(report))
			return
		}
	}
}
