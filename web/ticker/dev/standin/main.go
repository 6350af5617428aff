// Command standin serves the ticker page for development: the static files, a WebSocket endpoint on
// the centrifuge library, and the publisher of CONTRACT.md. It is not part of Dunlin; it lets the
// page be worked on, and checked against the reference implementation of the protocol.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"math"
	"math/rand/v2"
	"net/http"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/centrifugal/centrifuge"
)

const (
	historySize     = 120
	historyTTL      = 10 * time.Minute
	tickInterval    = 200 * time.Millisecond
	quotesInterval  = 50 * time.Millisecond
	lobbyNamespace  = "lobby:"
	chatNamespace   = "chat:"
	chatSize        = 100
	chatTTL         = time.Hour
	quotesChannel   = "quotes:all"
	contentSecurity = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'"
)

var symbols = []string{"ACME", "DUNL", "KNOT", "PLVR", "SNIP", "REDS", "GODW", "TURN", "WHIM", "CURL", "STNT", "OYST"}

type tick struct {
	Symbol    string  `json:"symbol"`
	Number    int     `json:"number"`
	Price     float64 `json:"price"`
	ChangePct float64 `json:"change_pct"`
	Volume    int     `json:"volume"`
	TimeMs    int64   `json:"time_ms"`
}

type quotes struct {
	Quotes map[string]float64 `json:"quotes"`
	TimeMs int64              `json:"time_ms"`
}

func main() {
	listen := flag.String("listen", "127.0.0.1:20400", "address to listen on")
	page := flag.String("page", "../../dist", "folder of the built page")
	flag.Parse()
	if err := run(*listen, *page); err != nil {
		log.Fatal(err)
	}
}

func run(listen, page string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	node, err := centrifuge.New(centrifuge.Config{})
	if err != nil {
		return err
	}
	node.OnConnecting(func(context.Context, centrifuge.ConnectEvent) (centrifuge.ConnectReply, error) {
		return centrifuge.ConnectReply{Credentials: &centrifuge.Credentials{}}, nil
	})
	node.OnConnect(allowReading)
	if err := node.Run(); err != nil {
		return err
	}
	go publish(ctx, node)

	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{}))
	files := http.FileServer(http.Dir(page))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", contentSecurity)
		w.Header().Set("Cache-Control", "no-cache")
		files.ServeHTTP(w, r)
	})
	server := &http.Server{Addr: listen, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		deadline, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_ = node.Shutdown(deadline)
		_ = server.Shutdown(deadline)
	}()
	log.Printf("standin on http://%s/", listen)
	if err := server.ListenAndServe(); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func allowReading(client *centrifuge.Client) {
	client.OnSubscribe(func(event centrifuge.SubscribeEvent, reply centrifuge.SubscribeCallback) {
		isLobby := strings.HasPrefix(event.Channel, lobbyNamespace)
		hasHistory := strings.HasPrefix(event.Channel, "ticker:") || strings.HasPrefix(event.Channel, chatNamespace)
		reply(centrifuge.SubscribeReply{Options: centrifuge.SubscribeOptions{
			EmitPresence:      isLobby || hasHistory,
			EmitJoinLeave:     isLobby,
			PushJoinLeave:     isLobby,
			EnableRecovery:    hasHistory,
			EnablePositioning: hasHistory,
		}}, nil)
	})
	client.OnPublish(func(event centrifuge.PublishEvent, reply centrifuge.PublishCallback) {
		if !strings.HasPrefix(event.Channel, chatNamespace) {
			reply(centrifuge.PublishReply{}, centrifuge.ErrorPermissionDenied)
			return
		}
		reply(centrifuge.PublishReply{Options: centrifuge.PublishOptions{HistorySize: chatSize, HistoryTTL: chatTTL}}, nil)
	})
	client.OnHistory(func(_ centrifuge.HistoryEvent, reply centrifuge.HistoryCallback) {
		reply(centrifuge.HistoryReply{}, nil)
	})
	client.OnPresence(func(_ centrifuge.PresenceEvent, reply centrifuge.PresenceCallback) {
		reply(centrifuge.PresenceReply{}, nil)
	})
	client.OnPresenceStats(func(_ centrifuge.PresenceStatsEvent, reply centrifuge.PresenceStatsCallback) {
		reply(centrifuge.PresenceStatsReply{}, nil)
	})
}

// publish walks the prices until the context ends. Symbols take turns within the interval, so that
// the publications come evenly.
func publish(ctx context.Context, node *centrifuge.Node) {
	open := map[string]float64{}
	price := map[string]float64{}
	number := map[string]int{}
	for i, symbol := range symbols {
		open[symbol] = 60 + 9.5*float64(i)
		price[symbol] = open[symbol]
	}
	turn := time.NewTicker(tickInterval / time.Duration(len(symbols)))
	defer turn.Stop()
	all := time.NewTicker(quotesInterval)
	defer all.Stop()
	wind := 0.0
	for next := 0; ; {
		select {
		case <-ctx.Done():
			return
		case now := <-turn.C:
			symbol := symbols[next%len(symbols)]
			next++
			wind = 0.98*wind + 0.0001*rand.NormFloat64()
			pull := 0.002 * (open[symbol]/price[symbol] - 1)
			number[symbol]++
			price[symbol] *= 1 + wind + pull + 0.0009*rand.NormFloat64()
			send(node, "ticker:"+symbol, tick{
				Symbol:    symbol,
				Number:    number[symbol],
				Price:     cents(price[symbol]),
				ChangePct: cents((price[symbol]/open[symbol] - 1) * 100),
				Volume:    50 + rand.IntN(2400),
				TimeMs:    now.UnixMilli(),
			}, centrifuge.WithHistory(historySize, historyTTL))
		case now := <-all.C:
			rounded := map[string]float64{}
			for symbol, value := range price {
				rounded[symbol] = cents(value)
			}
			send(node, quotesChannel, quotes{Quotes: rounded, TimeMs: now.UnixMilli()})
		}
	}
}

func send(node *centrifuge.Node, channel string, payload any, options ...centrifuge.PublishOption) {
	data, err := json.Marshal(payload)
	if err != nil {
		log.Fatal(err)
	}
	if _, err := node.Publish(channel, data, options...); err != nil {
		log.Printf("publish %s: %v", channel, err)
	}
}

func cents(value float64) float64 { return math.Round(value*100) / 100 }
