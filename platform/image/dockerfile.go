package image

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// Config contains the settings of the last stage of a Dockerfile, in the format of an image configuration.
type Config struct {
	User         string              `json:"User,omitempty"`
	ExposedPorts map[string]struct{} `json:"ExposedPorts,omitempty"`
	Env          []string            `json:"Env,omitempty"`
	Entrypoint   []string            `json:"Entrypoint,omitempty"`
	Cmd          []string            `json:"Cmd,omitempty"`
	Healthcheck  *Healthcheck        `json:"Healthcheck,omitempty"`
	WorkingDir   string              `json:"WorkingDir,omitempty"`
	Labels       map[string]string   `json:"Labels,omitempty"`
	StopSignal   string              `json:"StopSignal,omitempty"`
}

// Healthcheck is an extension of Docker. It is not part of the OCI specification, and Kubernetes ignores it. Durations are in nanoseconds.
type Healthcheck struct {
	Test        []string      `json:"Test"`
	Interval    time.Duration `json:"Interval,omitempty"`
	Timeout     time.Duration `json:"Timeout,omitempty"`
	StartPeriod time.Duration `json:"StartPeriod,omitempty"`
	Retries     int           `json:"Retries,omitempty"`
}

// ReadDockerfile reads the last stage of a Dockerfile. That stage must be `FROM scratch` with exactly one copy, `COPY --from=STAGE /image/ /`:
// so an image that is written from the folder `image` of that stage equals the image that an image builder produces.
func ReadDockerfile(path string) (Config, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return Config{}, err
	}
	config, err := parseDockerfile(string(text))
	if err != nil {
		return Config{}, fmt.Errorf("%s: %w", path, err)
	}
	return config, nil
}

func parseDockerfile(text string) (Config, error) {
	config := Config{Labels: map[string]string{}, ExposedPorts: map[string]struct{}{}}
	isLast, copies := false, 0
	for number, line := range instructions(text) {
		name, rest, _ := strings.Cut(line, " ")
		rest = strings.TrimSpace(rest)
		name = strings.ToUpper(name)
		if name == "FROM" {
			isLast = rest == "scratch"
			copies = 0
			continue
		}
		if !isLast {
			continue
		}
		if name == "COPY" {
			copies++
		}
		if err := config.set(name, rest); err != nil {
			return Config{}, fmt.Errorf("instruction %d, %s: %w", number+1, name, err)
		}
	}
	if !isLast {
		return Config{}, fmt.Errorf("the last stage is not FROM scratch; only such an image can be written without a builder")
	}
	if copies != 1 {
		return Config{}, fmt.Errorf("the last stage has %d COPY instructions; it must have one, `COPY --from=STAGE /image/ /`", copies)
	}
	if config.User == "" || strings.HasPrefix(config.User, "0") || strings.HasPrefix(config.User, "root") {
		return Config{}, fmt.Errorf("USER is %q; set it to a number other than 0, such as 65532:65532", config.User)
	}
	if len(config.Entrypoint) == 0 {
		return Config{}, fmt.Errorf("ENTRYPOINT is missing; set it to the program, as a JSON list")
	}
	return config, nil
}

// instructions returns the lines without comments, with continuation lines joined.
func instructions(text string) []string {
	var all []string
	continued := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if before, isContinued := strings.CutSuffix(line, `\`); isContinued {
			continued += before + " "
			continue
		}
		all = append(all, continued+line)
		continued = ""
	}
	return all
}

func (config *Config) set(name, rest string) error {
	switch name {
	case "COPY":
		fields := strings.Fields(rest)
		if len(fields) != 3 || !strings.HasPrefix(fields[0], "--from=") || fields[1] != "/image/" || fields[2] != "/" {
			return fmt.Errorf("%q is not `--from=STAGE /image/ /`, the only copy that is allowed here", rest)
		}
	case "USER":
		config.User = rest
	case "WORKDIR":
		config.WorkingDir = rest
	case "STOPSIGNAL":
		config.StopSignal = rest
	case "EXPOSE":
		for _, port := range strings.Fields(rest) {
			if !strings.Contains(port, "/") {
				port += "/tcp"
			}
			config.ExposedPorts[port] = struct{}{}
		}
	case "ENTRYPOINT":
		return list(rest, &config.Entrypoint)
	case "CMD":
		return list(rest, &config.Cmd)
	case "LABEL", "ENV":
		key, value, isPair := strings.Cut(rest, "=")
		if !isPair {
			return fmt.Errorf("%q is not NAME=VALUE", rest)
		}
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		} else if strings.ContainsAny(value, " \"'$") {
			return fmt.Errorf("%q: write one NAME=VALUE in an instruction, with double quotes around a value with blanks", rest)
		}
		if name == "LABEL" {
			config.Labels[key] = value
		} else {
			config.Env = append(config.Env, key+"="+value)
		}
	case "HEALTHCHECK":
		return config.setHealthcheck(rest)
	default:
		return fmt.Errorf("is not supported in the last stage; do it in the stage before, or extend platform/image")
	}
	return nil
}

func list(text string, into *[]string) error {
	if err := json.Unmarshal([]byte(text), into); err != nil {
		return fmt.Errorf("%q is not a JSON list; an image without a shell needs that form", text)
	}
	return nil
}

func (config *Config) setHealthcheck(text string) error {
	check := &Healthcheck{}
	options, command, isCommand := strings.Cut(text, "CMD ")
	if !isCommand {
		return fmt.Errorf("%q has no CMD", text)
	}
	for _, option := range strings.Fields(options) {
		name, value, _ := strings.Cut(option, "=")
		if name == "--retries" {
			count, err := strconv.Atoi(value)
			if err != nil {
				return fmt.Errorf("%s: %w", option, err)
			}
			check.Retries = count
			continue
		}
		duration, err := time.ParseDuration(value)
		if err != nil {
			return fmt.Errorf("%s: %w", option, err)
		}
		switch name {
		case "--interval":
			check.Interval = duration
		case "--timeout":
			check.Timeout = duration
		case "--start-period":
			check.StartPeriod = duration
		default:
			return fmt.Errorf("%s is not supported", name)
		}
	}
	var words []string
	if err := list(command, &words); err != nil {
		return err
	}
	check.Test = append([]string{"CMD"}, words...)
	config.Healthcheck = check
	return nil
}
