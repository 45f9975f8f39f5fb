/* The complex functions of Windows' C runtime that Wine's lacks, and that NumPy and SciPy import. For tests: they are
 * accurate where nothing overflows. The C runtime passes a complex number as a structure. */

#include <math.h>

typedef struct { double r, i; } D;
typedef struct { float r, i; } F;

static D times(D a, D b) { return (D){a.r * b.r - a.i * b.i, a.r * b.i + a.i * b.r}; }
static D turned(D a) { return (D){-a.i, a.r}; } /* times i */
static D turned_back(D a) { return (D){a.i, -a.r}; }

static double real_of(D a) { return a.r; }
static double imag_of(D a) { return a.i; }
static double abs_of(D a) { return hypot(a.r, a.i); }
static double arg_of(D a) { return atan2(a.i, a.r); }
static D exp_of(D a) { return (D){exp(a.r) * cos(a.i), exp(a.r) * sin(a.i)}; }
static D log_of(D a) { return (D){log(abs_of(a)), arg_of(a)}; }
static D cosh_of(D a) { return (D){cosh(a.r) * cos(a.i), sinh(a.r) * sin(a.i)}; }
static D sinh_of(D a) { return (D){sinh(a.r) * cos(a.i), cosh(a.r) * sin(a.i)}; }
static D cos_of(D a) { return cosh_of(turned(a)); }
static D sin_of(D a) { return turned_back(sinh_of(turned(a))); }
static D tanh_of(D a) {
  double t = tanh(a.r), s = tan(a.i), bottom = 1 + t * t * s * s;
  return (D){t * (1 + s * s) / bottom, s * (1 - t * t) / bottom};
}
static D tan_of(D a) { return turned_back(tanh_of(turned(a))); }
static D pow_of(D a, D b) { return a.r || a.i ? exp_of(times(b, log_of(a))) : (D){!(b.r || b.i), 0}; }
static D sqrt_of(D a) {
  double size = abs_of(a), r = sqrt((size + fabs(a.r)) / 2), i = r ? fabs(a.i) / (2 * r) : 0;
  return (D){a.r < 0 ? i : r, copysign(a.r < 0 ? r : i, a.i)};
}
static D atan_of(D a) {
  D above = log_of((D){1 + a.i, -a.r}), below = log_of((D){1 - a.i, a.r}); /* of 1 - iz and 1 + iz */
  return turned((D){(above.r - below.r) / 2, (above.i - below.i) / 2});
}

#define API __declspec(dllexport)
#define REAL(name) \
  API double c##name(D a) { return name##_of(a); } \
  API double c##name##l(D a) { return name##_of(a); } \
  API float c##name##f(F a) { return name##_of((D){a.r, a.i}); }
#define COMPLEX(name) \
  API D c##name(D a) { return name##_of(a); } \
  API D c##name##l(D a) { return name##_of(a); } \
  API F c##name##f(F a) { D z = name##_of((D){a.r, a.i}); return (F){z.r, z.i}; }
REAL(real) REAL(imag) REAL(abs) REAL(arg)
COMPLEX(exp) COMPLEX(log) COMPLEX(cosh) COMPLEX(sinh) COMPLEX(tanh) COMPLEX(cos) COMPLEX(sin) COMPLEX(tan)
COMPLEX(sqrt) COMPLEX(atan)
API D cpow(D a, D b) { return pow_of(a, b); }
API D cpowl(D a, D b) { return pow_of(a, b); }
API F cpowf(F a, F b) { D z = pow_of((D){a.r, a.i}, (D){b.r, b.i}); return (F){z.r, z.i}; }
API F _FCbuild(float r, float i) { return (F){r, i}; }
