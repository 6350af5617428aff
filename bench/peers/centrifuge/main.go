// Command centrifuge is a peer to measure Dunlin against: the library that Centrifugo is made of, with its memory
// engine and the least around it. It reads the configuration that `dunlin bench --spawn` writes, as far as it needs it.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"net/http"

	"github.com/centrifugal/centrifuge"

	"github.com/dunlin-project/dunlin/bench/peers/peer"
)

func main() {
	path := flag.String("c", "config.json", "configuration file")
	flag.Parse()
	if err := run(*path); err != nil {
		log.Fatal(err)
	}
}

func run(path string) error {
	config, err := peer.ReadConfig(path)
	if err != nil {
		return err
	}
	node, err := centrifuge.New(centrifuge.Config{ClientQueueMaxSize: config.Client.QueueMaxSize})
	if err != nil {
		return err
	}
	allowAll(node)
	if err := node.Run(); err != nil {
		return err
	}
	mux := peer.Mux(anonymous(centrifuge.NewWebsocketHandler(node, centrifuge.WebsocketConfig{
		CheckOrigin: func(*http.Request) bool { return true },
		// As in Centrifugo: an idle connection holds no write buffer.
		UseWriteBufferPool: true,
	})))
	mux.Handle("/api/publish", peer.PublishHandler(config.HTTPAPI.Key, func(channel string, data json.RawMessage) error {
		_, err := node.Publish(channel, data)
		return err
	}))
	return config.Serve(mux)
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
