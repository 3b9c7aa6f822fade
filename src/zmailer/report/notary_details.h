/*
 * Reads notary data as the queue process's details of deliveries (delivery_details.h).
 */
#ifndef ZMAILER_NOTARY_DETAILS_H
#define ZMAILER_NOTARY_DETAILS_H

/* Registers the form of notary data. Called before a role begins. */
void notary_details_register(void);

#endif
