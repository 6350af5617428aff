package main

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"
)

const expectDeadline = 10 * time.Second

// server is the server under test.
type server struct {
	wsURLs                 []string // the connections of a play use them in turn
	apiURL, apiKey, secret string
	hasGaps                bool // offsets have gaps, and are left out
}

// play is one script in one encoding.
type play struct {
	script      *script
	server      server
	codec       codec
	names       names
	connections map[string]*connection
	answers     []any // of the HTTP API
	barriers    int
}

// transcript has the normalised messages of each connection and of the HTTP API.
type transcript struct {
	Unordered   bool             `json:"unordered,omitempty"`
	Connections map[string][]any `json:"connections"`
}

// run plays the script. The unique part of names has a fixed length, since
// lengths can matter to a script.
func (p *play) run(unique string) (*transcript, error) {
	p.names.values = map[string]string{"u": unique}
	p.connections = map[string]*connection{}
	defer func() {
		for _, c := range p.connections {
			if c.socket != nil {
				_ = c.socket.Close()
			}
		}
	}()
	if err := p.script.sign(&p.names, p.server.secret); err != nil {
		return nil, err
	}
	for i, s := range p.script.Steps {
		if err := p.do(s); err != nil {
			return nil, fmt.Errorf("%s, step %d: %w", p.script.name, i+1, err)
		}
	}
	return p.transcript(unique), nil
}

func (p *play) do(s step) error {
	switch {
	case s.Connect != "":
		url := p.server.wsURLs[len(p.connections)%len(p.server.wsURLs)]
		c, err := dial(url, s.Origin, p.codec, p.script.ManualPong)
		p.connections[s.Connect] = c
		return err
	case s.Send != "":
		return p.send(s)
	case s.Pong != "":
		return ignoreClosed(p.connections[s.Pong].write(p.codec.empty()))
	case s.Expect != "":
		c := p.connections[s.Expect]
		c.expect(s)
		p.names.values["client:"+s.Expect] = c.clientID
		return nil
	case s.Barrier != "":
		p.barriers++
		return p.connections[s.Barrier].barrier(barrierIDs + p.barriers)
	case s.Drop != "":
		p.connections[s.Drop].drop()
		return nil
	case s.API != "":
		for range max(1, s.Times) {
			if err := p.api(s); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("a step without an action: %+v", s)
}

func (p *play) send(s step) error {
	c := p.connections[s.Send]
	if c == nil {
		return fmt.Errorf("no connection %q", s.Send)
	}
	if raw := p.codec.raw(s); raw != nil {
		frame := []byte(*raw)
		if _, isProtobuf := p.codec.(protobufCodec); isProtobuf {
			var err error
			if frame, err = hex.DecodeString(*raw); err != nil {
				return err
			}
		}
		return ignoreClosed(c.write(frame))
	}
	commands := make([]string, 0, len(s.Commands))
	for _, command := range s.Commands {
		filled, err := p.names.fill(string(command))
		if err != nil {
			return err
		}
		commands = append(commands, filled)
	}
	if len(commands) == 0 {
		return fmt.Errorf("nothing to send in this encoding")
	}
	frame, err := p.codec.join(commands)
	if s.appended != nil {
		frame, err = s.appended.frame(commands[0])
	}
	if err != nil {
		return err
	}
	return ignoreClosed(c.write(frame))
}

// ignoreClosed ignores errors of a closed connection, because the transcript shows that it was closed.
func ignoreClosed(error) error { return nil }

func (p *play) api(s step) error {
	body, err := p.names.fill(string(s.Body))
	if err != nil {
		return err
	}
	if s.ExpireIn != nil {
		body = fmt.Sprintf("%s,\"expire_at\":%d}", strings.TrimSuffix(body, "}"), time.Now().Unix()+*s.ExpireIn)
	}
	request, err := http.NewRequest(http.MethodPost, p.server.apiURL+"/"+s.API, bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	request.Header.Set("X-API-Key", p.server.apiKey)
	request.Header.Set("Content-Type", "application/json")
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	decoder := json.NewDecoder(answer.Body)
	decoder.UseNumber()
	var reply object
	if err := decoder.Decode(&reply); err != nil {
		reply = object{"body": "not JSON"}
	}
	if answer.StatusCode != http.StatusOK {
		reply["status"] = answer.StatusCode
	}
	p.answers = append(p.answers, object{s.API: reply})
	if s.Save != "" {
		result, _ := reply["result"].(object)
		epoch, _ := result["epoch"].(string)
		p.names.values["epoch:"+s.Save] = epoch
	}
	return nil
}

// Barriers use ids that scripts do not use.
const barrierIDs = 900_000

func barrierCommand(id int) string {
	return fmt.Sprintf(`{"id":%d,"rpc":{"method":"barrier","data":{}}}`, id)
}

func sameNumber(value any, number int) bool {
	written, is := value.(json.Number)
	return is && written.String() == fmt.Sprint(number)
}
