// Clients that follow channels and print what they see; the arguments and the lines are those of ../../js/follower.mjs.
package main

import (
	"encoding/json"
	"log"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/centrifugal/centrifuge-go"
)

type printer struct {
	lock    sync.Mutex
	encoder *json.Encoder
}

func (p *printer) print(event map[string]any) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if err := p.encoder.Encode(event); err != nil {
		log.Fatal(err)
	}
}

func follow(printer *printer, url string, client int, channel string) error {
	config := centrifuge.Config{MaxReconnectDelay: 2 * time.Second}
	connection := centrifuge.NewJsonClient(url, config)
	if client%2 == 1 {
		connection = centrifuge.NewProtobufClient(url, config)
	}
	subscription, err := connection.NewSubscription(channel)
	if err != nil {
		return err
	}
	subscription.OnSubscribed(func(event centrifuge.SubscribedEvent) {
		if event.WasRecovering {
			printer.print(map[string]any{"client": client, "recovered": event.Recovered})
		} else {
			printer.print(map[string]any{"client": client, "begin": event.StreamPosition.Offset})
		}
	})
	subscription.OnPublication(func(event centrifuge.PublicationEvent) {
		var data struct{ ID string }
		if err := json.Unmarshal(event.Data, &data); err != nil {
			log.Fatal(err)
		}
		printer.print(map[string]any{"client": client, "offset": event.Offset, "id": data.ID})
	})
	if err := subscription.Subscribe(); err != nil {
		return err
	}
	return connection.Connect()
}

func main() {
	url, channels := os.Args[1], os.Args[3:]
	clients, err := strconv.Atoi(os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	printer := &printer{encoder: json.NewEncoder(os.Stdout)}
	for client := range clients {
		if err := follow(printer, url, client, channels[client%len(channels)]); err != nil {
			log.Fatal(err)
		}
	}
	select {}
}
