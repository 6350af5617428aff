package main

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/client-go/rest"

	"github.com/dunlin-project/dunlin/platform/apiserver"
	"github.com/dunlin-project/dunlin/platform/lab/certificates"
)

const (
	bootstrapKey  = "/bootstrap"
	serviceAPI    = "10.43.0.1"
	serverAddress = "https://127.0.0.1:6443"
)

// bootstrap is the data that every server of a cluster has. As with k3s, it is stored in the datastore, encrypted with the token. So a snapshot
// and the token are enough to restore a server.
type bootstrap struct {
	Certificate, Key, ServiceAccountKey, EncryptionKey []byte
}

func newBootstrap() (bootstrap, error) {
	authority, err := certificates.NewAuthority("k3s-stand-in")
	if err != nil {
		return bootstrap{}, err
	}
	certificate, key, err := authority.PEM()
	if err != nil {
		return bootstrap{}, err
	}
	_, signer, err := authority.Sign(certificates.ForClient("service-accounts"))
	encryption := make([]byte, 32)
	_, _ = rand.Read(encryption)
	return bootstrap{certificate, key, signer, encryption}, err
}

func sealer(token string) (cipher.AEAD, error) {
	key := sha256.Sum256([]byte(token))
	block, err := aes.NewCipher(key[:])
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

func (found bootstrap) store(token string) error {
	text, err := json.Marshal(found)
	if err != nil {
		return err
	}
	seal, err := sealer(token)
	if err != nil {
		return err
	}
	sealed := base64.StdEncoding.EncodeToString(seal.Seal(nil, nil, text, nil))
	_, err = output(sealed, "etcdctl", "--endpoints="+etcdClients, "put", bootstrapKey)
	return err
}

var errTokenDiffers = errors.New("bootstrap data already found and encrypted with different token")

// loadBootstrap reads the datastore, and creates missing data.
func loadBootstrap(token string) (bootstrap, error) {
	var found bootstrap
	text, err := output("", "etcdctl", "--endpoints="+etcdClients, "get", bootstrapKey, "--print-value-only")
	if err != nil {
		return found, err
	}
	if strings.TrimSpace(text) == "" {
		if found, err = newBootstrap(); err != nil {
			return found, err
		}
		return found, found.store(token)
	}
	sealed, err := base64.StdEncoding.DecodeString(strings.TrimSpace(text))
	if err != nil {
		return found, err
	}
	seal, err := sealer(token)
	if err != nil {
		return found, err
	}
	plain, err := seal.Open(nil, nil, sealed, nil)
	if err != nil {
		return found, errTokenDiffers
	}
	return found, json.Unmarshal(plain, &found)
}

// serverToken is the token in the form that k3s writes, with the checksum of the authority's certificate.
func (found bootstrap) serverToken(token string) string {
	sum := sha256.Sum256(found.Certificate)
	return "K10" + hex.EncodeToString(sum[:]) + "::server:" + token + "\n"
}

const encryptionConfig = `apiVersion: apiserver.config.k8s.io/v1
kind: EncryptionConfiguration
resources:
- resources: [secrets]
  providers:
  - aescbc: { keys: [{ name: first, secret: %s }] }
  - identity: {}
`

// write writes the files of a server. It keeps existing certificates.
func (found bootstrap) write(config config, token string) error {
	authority, err := certificates.ReadAuthority(found.Certificate, found.Key)
	if err != nil {
		return err
	}
	encryption := fmt.Sprintf(encryptionConfig, base64.StdEncoding.EncodeToString(found.EncryptionKey))
	for path, content := range map[string][]byte{
		tlsFolder + "/server-ca.crt": found.Certificate, tlsFolder + "/server-ca.key": found.Key,
		tlsFolder + "/service.key": found.ServiceAccountKey, serverFolder + "/cred/encryption-config.yaml": []byte(encryption),
		serverFolder + "/token": []byte(found.serverToken(token)), serverFolder + "/node-token": []byte(found.serverToken(token)),
	} {
		if err := writeFile(path, content); err != nil {
			return err
		}
	}
	names := []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"}
	addresses := []string{"127.0.0.1", serviceAPI, config.NodeIP}
	for _, name := range config.TLSNames {
		if isAddress(name) {
			addresses = append(addresses, name)
		} else {
			names = append(names, name)
		}
	}
	if err := writeOnce(authority, "serving-kube-apiserver", certificates.ForServer("kube-apiserver", names, addresses)); err != nil {
		return err
	}
	for name, user := range serverUsers {
		if err := writeOnce(authority, "client-"+name, certificates.ForClient(user[0], user[1:]...)); err != nil {
			return err
		}
		text, err := connection(found.Certificate, serverAddress, tlsFolder, "client-"+name)
		if err != nil {
			return err
		}
		if err := writeFile(serverFolder+"/cred/"+name+".kubeconfig", text); err != nil {
			return err
		}
	}
	return nil
}

// serverUsers are the users of a server's own programs, with their groups.
var serverUsers = map[string][]string{
	"admin":              {"system:admin", "system:masters"},
	"kube-apiserver":     {"system:apiserver", "system:masters"},
	"controller-manager": {"system:kube-controller-manager"},
	"scheduler":          {"system:kube-scheduler"},
}

// connection returns a kubeconfig with a certificate of the folder.
func connection(authority []byte, address, folder, name string) ([]byte, error) {
	certificate, err := os.ReadFile(filepath.Join(folder, name+".pem"))
	if err != nil {
		return nil, err
	}
	key, err := os.ReadFile(filepath.Join(folder, name+"-key.pem"))
	if err != nil {
		return nil, err
	}
	return apiserver.Kubeconfig(&rest.Config{
		Host: address, TLSClientConfig: rest.TLSClientConfig{CAData: authority, CertData: certificate, KeyData: key},
	})
}

// isRotated reports whether a file is a certificate, or the key of one, that `certificate rotate` replaces.
func isRotated(name string) bool { return strings.HasSuffix(name, ".pem") }

// rotateCertificates moves certificates away, and the next start creates new ones. The authority stays.
func rotateCertificates(arguments []string) error {
	if len(arguments) != 1 || arguments[0] != "rotate" {
		return errors.New("the stand-in knows `certificate rotate` only")
	}
	if isServing() {
		return errors.New("k3s runs; stop it before its certificates are rotated")
	}
	aside := fmt.Sprintf("%s/certificates-%d", stateFolder, time.Now().Unix())
	if err := os.MkdirAll(aside, 0o700); err != nil {
		return err
	}
	for _, folder := range []string{tlsFolder, agentFolder} {
		entries, err := os.ReadDir(folder)
		if err != nil && !os.IsNotExist(err) {
			return err
		}
		for _, entry := range entries {
			if isRotated(entry.Name()) {
				if err := os.Rename(filepath.Join(folder, entry.Name()), filepath.Join(aside, entry.Name())); err != nil {
					return err
				}
			}
		}
	}
	return remember("certificates rotated")
}

// rotateToken needs a running server, as with k3s. The server reads the previous token from its file.
func rotateToken(arguments []string) error {
	if len(arguments) != 3 || arguments[0] != "rotate" || arguments[1] != "--new-token" {
		return errors.New("the stand-in knows `token rotate --new-token NEW` only")
	}
	before, err := readPrivate(serverFolder + "/token")
	if err != nil {
		return err
	}
	_, old, _ := strings.Cut(strings.TrimSpace(before), "::server:")
	found, err := loadBootstrap(old)
	if err != nil {
		return err
	}
	if err := found.store(arguments[2]); err != nil {
		return err
	}
	text := []byte(found.serverToken(arguments[2]))
	return errors.Join(writeFile(serverFolder+"/token", text), writeFile(serverFolder+"/node-token", text), remember("token rotated"))
}
