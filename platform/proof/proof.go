// Package proof holds tests of the platform that need large libraries: the sops library, the API server's validation of
// CustomResourceDefinitions, and the checks of Pod Security. It is a module of its own, so that the platform does not depend on them.
package proof

import _ "github.com/dunlin-project/dunlin/platform/api/v1alpha1"
