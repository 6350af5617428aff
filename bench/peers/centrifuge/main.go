// Command centrifuge is a peer to measure Dunlin against: the library that Centrifugo is made of, with its memory
// engine and the least around it. It reads the configuration that `dunlin bench --spawn` writes, as far as it needs it.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/centrifugal/centrifuge"
)

type config struct {
	HTTPServer struct {
		Address string `json:"address"`
		Port    int    `json:"port"`
	} `json:"http_server"`
	HTTPAPI struct {
		Key string `json:"key"`
	} `json:"http_api"`
	Client struct {
		QueueMaxSize int `json:"queue_max_size"`
	} `json:"client"`
}

func main() {
	path := flag.String("c", "config.json", "configuration file")
	flag.Parse()
	if err := run(*path); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	var cfg config
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &cfg); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	node, err := centrifuge.New(centrifuge.Config{ClientQueueMaxSize: cfg.Client.QueueMaxSize})
	if err != nil {
		return err
	}
	allowAll(node)
	if err := node.Run(); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.Handle("/connection/websocket", anonymous(centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		CheckOrigin: func(*http.Request) bool { return true },
		// As in Centrifugo: an idle connection holds no write buffer.
		UseWriteBufferPool: true,
	})))
	mux.Handle("/api/publish", publish(node, cfg.HTTPAPI.Key))
	mux.HandleFunc("/health", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	listener, err := net.Listen("tcp", net.JoinHostPort(cfg.HTTPServer.Address, strconv.Itoa(cfg.HTTPServer.Port)))
	if err != nil {
		return err
	}
	go func() { log.Println(http.Serve(listener, mux)) }()
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	<-stop
	return nil
}

// allowAll lets every client subscribe and publish.
func allowAll(node *centrifuge.Node) {
	node.OnConnect(func(client *centrifuge.Client) {
		client.OnSubscribe(func(_ centrifuge.SubscribeEvent, cb centrifuge.SubscribeCallback) {
			cb(centrifuge.SubscribeReply{}, nil)
		})
		client.OnPublish(func(e centrifuge.PublishEvent, cb centrifuge.PublishCallback) {
			// As in Centrifugo: a publication carries its publisher.
			cb(centrifuge.PublishReply{Options: centrifuge.PublishOptions{ClientInfo: e.ClientInfo}}, nil)
		})
	})
}

// anonymous gives each connection empty credentials.
func anonymous(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := centrifuge.SetCredentials(r.Context(), &centrifuge.Credentials{})
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// publish is the one method of the HTTP API that the load generator uses.
func publish(node *centrifuge.Node, key string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("X-API-Key") != key {
			http.Error(w, "", http.StatusUnauthorized)
			return
		}
		var request struct {
			Channel string          `json:"channel"`
			Data    json.RawMessage `json:"data"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&request); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if _, err := node.Publish(request.Channel, request.Data); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = w.Write([]byte(`{"result":{}}`))
	})
}
