// Plays scripts of client commands against a server and records, for each
// connection, the messages of the server.
//
//	player -scripts FOLDER -out FILE [-members] [-cluster]
//
// The server is named by DUNLIN_WS_URL, DUNLIN_API_URL, DUNLIN_API_KEY and
// DUNLIN_HMAC_SECRET (tests/sdk/with-server sets them). DUNLIN_WS_URL may have
// several addresses, with commas between them: the connections of a script use
// them in turn. With -members, each command is played as well with each of its members absent,
// null, empty and of other types. With -cluster, offsets and epochs are left out of the transcripts, because
// channels of a cluster share streams, and scripts that contain offsets are not played.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"slices"
	"strings"
	"sync"
)

// parallelPlays can be high: most plays wait, and they share only the server.
const parallelPlays = 16

func main() {
	folder := flag.String("scripts", "scripts", "folder of scripts")
	out := flag.String("out", "", "file for the transcripts")
	onto := flag.String("onto", "", "file with transcripts of other scripts, to go into -out as well")
	cluster := flag.Bool("cluster", false, "leave out offsets")
	members := flag.Bool("members", false, "change each member of each command as well")
	only := flag.String("only", "", "play this script only, and print it")
	flag.Parse()
	log.SetFlags(0)
	where := server{
		wsURLs: strings.Split(required("DUNLIN_WS_URL"), ","), apiURL: required("DUNLIN_API_URL"),
		apiKey: required("DUNLIN_API_KEY"), secret: required("DUNLIN_HMAC_SECRET"),
		hasGaps: *cluster,
	}
	scripts, err := loadScripts(*folder)
	if err != nil {
		log.Fatal(err)
	}
	if *members {
		made, err := memberScripts()
		if err != nil {
			log.Fatal(err)
		}
		scripts = append(scripts, made...)
	}
	if *cluster {
		scripts = slices.DeleteFunc(scripts, (*script).hasOffsets)
	}
	transcripts, failed := playAll(scripts, where, *only)
	if *onto != "" {
		others, err := os.ReadFile(*onto)
		if err == nil {
			err = json.Unmarshal(others, &transcripts)
		}
		if err != nil {
			log.Fatal(err)
		}
	}
	encoded, err := json.MarshalIndent(transcripts, "", "  ")
	if err != nil {
		log.Fatal(err)
	}
	if *only != "" || *out == "" {
		fmt.Println(string(encoded))
	} else if err := os.WriteFile(*out, append(encoded, '\n'), 0o600); err != nil {
		log.Fatal(err)
	}
	if failed {
		os.Exit(1)
	}
}

// playAll returns transcripts by "script/encoding".
func playAll(scripts []*script, where server, only string) (map[string]*transcript, bool) {
	var mu sync.Mutex
	var done sync.WaitGroup
	transcripts := map[string]*transcript{}
	failed := false
	slots := make(chan struct{}, parallelPlays)
	number := 0
	for _, s := range scripts {
		for name, c := range map[string]codec{"json": jsonCodec{}, "protobuf": protobufCodec{}} {
			if !s.isFor(name) || only != "" && only != s.name {
				continue
			}
			number++
			unique := fmt.Sprintf("u%05d", number)
			slots <- struct{}{}
			done.Go(func() {
				defer func() { <-slots }()
				one := &play{script: s, server: where, codec: c}
				t, err := one.run(unique)
				mu.Lock()
				defer mu.Unlock()
				if err != nil {
					log.Printf("%s: %v", name, err)
					failed = true
					return
				}
				transcripts[s.name+"/"+name] = t
			})
		}
	}
	done.Wait()
	return transcripts, failed
}

func required(name string) string {
	value := os.Getenv(name)
	if value == "" {
		log.Fatalf("%s is not set (run through tests/sdk/with-server)", name)
	}
	return value
}
