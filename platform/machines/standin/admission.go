package main

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/dunlin-project/dunlin/platform/lab/certificates"
)

const joinPort = "9345"

// joining is the request of a machine to become a node.
type joining struct {
	Name, Address, Password, StoragePath string
}

// joined is the response: certificates and keys by the names of their files.
type joined struct {
	Files       map[string][]byte
	StoragePath string
}

// admission admits machines as nodes.
type admission struct {
	bootstrap bootstrap
	authority certificates.Authority
	token     string
	cluster   *kubernetes.Clientset
}

func newAdmission(found bootstrap, token string) (*admission, error) {
	connection, err := clientcmd.BuildConfigFromFlags("", kubeconfigPath)
	if err != nil {
		return nil, err
	}
	cluster, err := kubernetes.NewForConfig(connection)
	if err != nil {
		return nil, err
	}
	authority, err := certificates.ReadAuthority(found.Certificate, found.Key)
	return &admission{found, authority, token, cluster}, err
}

func (admission *admission) listen(address string) error {
	server := certificates.ForServer("k3s", nil, []string{address})
	if err := writeOnce(admission.authority, "serving-k3s", server); err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /cacerts", func(writer http.ResponseWriter, _ *http.Request) {
		_, _ = writer.Write(admission.bootstrap.Certificate)
	})
	mux.HandleFunc("POST /join", admission.admit)
	return http.ListenAndServeTLS(":"+joinPort, tlsFolder+"/serving-k3s.pem", tlsFolder+"/serving-k3s-key.pem", mux)
}

func (admission *admission) admit(writer http.ResponseWriter, request *http.Request) {
	_, token, _ := request.BasicAuth()
	if subtle.ConstantTimeCompare([]byte(token), []byte(admission.token)) != 1 {
		http.Error(writer, "not authorized", http.StatusUnauthorized)
		return
	}
	var asked joining
	if err := json.NewDecoder(request.Body).Decode(&asked); err != nil {
		http.Error(writer, err.Error(), http.StatusBadRequest)
		return
	}
	isOwn, err := admission.hasPassword(request.Context(), asked)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	if !isOwn {
		http.Error(writer, "Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server "+
			"node-passwd entry", http.StatusForbidden)
		return
	}
	answer, err := admission.files(asked)
	if err != nil {
		http.Error(writer, err.Error(), http.StatusInternalServerError)
		return
	}
	_ = json.NewEncoder(writer).Encode(answer)
}

// hasPassword compares the password with that of the first machine with the name. A deleted node has no password, as with k3s.
func (admission *admission) hasPassword(ctx context.Context, asked joining) (bool, error) {
	sum := sha256.Sum256([]byte(asked.Password))
	hash := hex.EncodeToString(sum[:])
	secrets := admission.cluster.CoreV1().Secrets("kube-system")
	name := asked.Name + ".node-password.k3s"
	before, err := secrets.Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{"hash": hash}}
		_, err := secrets.Create(ctx, secret, metav1.CreateOptions{})
		return err == nil, err
	}
	if err != nil || string(before.Data["hash"]) == hash {
		return err == nil, err
	}
	_, err = admission.cluster.CoreV1().Nodes().Get(ctx, asked.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return false, err
	}
	before.Data["hash"] = []byte(hash)
	_, err = secrets.Update(ctx, before, metav1.UpdateOptions{})
	return err == nil, err
}

func (admission *admission) files(asked joining) (joined, error) {
	answer := joined{Files: map[string][]byte{"server-ca.crt": admission.bootstrap.Certificate}}
	user := "system:node:" + asked.Name
	serving := certificates.ForServer(user, []string{asked.Name}, []string{asked.Address})
	client := certificates.ForClient(user, "system:nodes")
	proxy := certificates.ForClient("system:kube-proxy")
	for name, template := range map[string]*x509.Certificate{"serving-kubelet": serving, "client-kubelet": client, "client-kube-proxy": proxy} {
		certificate, key, err := admission.authority.Sign(template)
		if err != nil {
			return answer, err
		}
		answer.Files[name+".pem"], answer.Files[name+"-key.pem"] = certificate, key
	}
	return answer, admission.makeVolumes(asked)
}
