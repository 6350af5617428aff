package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/gorilla/websocket"
)

const patience = 10 * time.Second

func TestEachWayDeliversTheSameAndVisitsAndMarshalsAsItSays(t *testing.T) {
	const publications, onA, onB = 3, 4, 2
	for _, way := range []struct {
		walk, marshal     string
		visited, marshals int
	}{
		{"map", "each", onA + onB, onA},
		{"map", "once", onA + onB, 1},
		{"list", "each", onA + onB, onA},
		{"list", "once", onA + onB, 1},
		{"index", "once", onA, 1},
	} {
		t.Run(way.walk+" "+way.marshal, func(t *testing.T) {
			s, url := start(t, way.walk, way.marshal, 512)
			var clients []*websocket.Conn
			for range onA {
				clients = append(clients, subscribed(t, url, "a"))
			}
			for range onB {
				clients = append(clients, subscribed(t, url, "b"))
			}
			for number := range publications {
				s.publish("a", fmt.Appendf(nil, `"%d"`, number))
			}
			windows := s.figures.windows()
			got := windows[len(windows)-1]
			if got.Publications != publications || got.Visited != publications*way.visited ||
				got.Marshals != publications*way.marshals || got.Queued != publications*onA || got.Connections != onA+onB {
				t.Errorf("%+v", got)
			}
			for _, connection := range clients[:onA] {
				for number := range publications {
					want := fmt.Sprintf(`{"seq":%d,"push":{"channel":"a","pub":{"data":"%d"}}}`, number+1, number)
					if got := next(t, connection); got != want {
						t.Fatalf("got %s, want %s", got, want)
					}
				}
			}
			// The others have got nothing before.
			s.publish("b", []byte(`"last"`))
			for _, connection := range clients[onA:] {
				if got, want := next(t, connection), `{"seq":1,"push":{"channel":"b","pub":{"data":"last"}}}`; got != want {
					t.Fatalf("got %s, want %s", got, want)
				}
			}
			for _, connection := range clients {
				_ = connection.Close()
			}
			until(t, "all clients are forgotten", func() bool { return s.clients.size() == 0 })
		})
	}
}

func TestAClientPublishesByACommandAndByTheAPI(t *testing.T) {
	_, url := start(t, "index", "once", 512)
	connection := subscribed(t, url, "a")
	send(t, connection, `{"id":3,"publish":{"channel":"a","data":{"x":1}}}`)
	for _, want := range []string{`{"seq":1,"push":{"channel":"a","pub":{"data":{"x":1}}}}`, `{"id":3,"publish":{}}`} {
		if got := next(t, connection); got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
	for key, status := range map[string]int{"wrong": http.StatusUnauthorized, "key": http.StatusOK} {
		request, err := http.NewRequest(http.MethodPost, url+"/api/publish", strings.NewReader(`{"channel":"a","data":2}`))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-API-Key", key)
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("key %s: HTTP %d", key, response.StatusCode)
		}
	}
	if got, want := next(t, connection), `{"seq":2,"push":{"channel":"a","pub":{"data":2}}}`; got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestAClientWhoseQueueIsFullThreeTimesInARowIsDisconnected(t *testing.T) {
	s, err := newServer("index", "once", 1)
	if err != nil {
		t.Fatal(err)
	}
	accepted := make(chan *client, 1)
	upgrader := websocket.Upgrader{}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		// Nothing writes what is queued.
		accepted <- newClient(s, conn)
	}))
	defer server.Close()
	connection := dialed(t, server.URL)
	c := <-accepted
	s.clients.subscribe(c, "a")
	for range failuresMax {
		s.publish("a", []byte(`1`))
	}
	if got := s.figures.slow.Load(); got != 0 {
		t.Fatalf("%d slow clients after %d failures", got, failuresMax-1)
	}
	s.publish("a", []byte(`1`))
	if _, _, err := connection.ReadMessage(); err == nil {
		t.Fatal("the client is still connected")
	}
	if got := s.figures.slow.Load(); got != 1 {
		t.Errorf("%d slow clients, want 1", got)
	}
}

func TestUnknownWaysAreRefused(t *testing.T) {
	for _, way := range [][2]string{{"tree", "once"}, {"index", "twice"}} {
		if _, err := newServer(way[0], way[1], 1); err == nil {
			t.Errorf("%v is accepted", way)
		}
	}
	if _, err := newServer("index", "once", 0); err == nil {
		t.Error("a queue without slots is accepted")
	}
}

func start(t *testing.T, walk, marshal string, slots int) (*server, string) {
	t.Helper()
	s, err := newServer(walk, marshal, slots)
	if err != nil {
		t.Fatal(err)
	}
	listening := httptest.NewServer(s.handler("key"))
	t.Cleanup(listening.Close)
	return s, listening.URL
}

func dialed(t *testing.T, url string) *websocket.Conn {
	t.Helper()
	connection, _, err := websocket.DefaultDialer.Dial("ws"+strings.TrimPrefix(url, "http")+"/connection/websocket", nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = connection.Close() })
	_ = connection.SetReadDeadline(time.Now().Add(patience))
	return connection
}

func subscribed(t *testing.T, url, channel string) *websocket.Conn {
	t.Helper()
	connection := dialed(t, url)
	// Both commands in one message, as SDKs send them.
	send(t, connection, fmt.Sprintf("{\"id\":1,\"connect\":{}}\n{\"id\":2,\"subscribe\":{\"channel\":%q}}", channel))
	if got := next(t, connection); !strings.HasPrefix(got, `{"id":1,"connect":{`) {
		t.Fatal(got)
	}
	if got := next(t, connection); got != `{"id":2,"subscribe":{}}` {
		t.Fatal(got)
	}
	return connection
}

func send(t *testing.T, connection *websocket.Conn, text string) {
	t.Helper()
	if err := connection.WriteMessage(websocket.TextMessage, []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func next(t *testing.T, connection *websocket.Conn) string {
	t.Helper()
	_, message, err := connection.ReadMessage()
	if err != nil {
		t.Fatal(err)
	}
	return string(message)
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !condition(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatal(what + ": not within " + patience.String())
		}
	}
}
